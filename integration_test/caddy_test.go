//go:build unix

// Package integration_test drives real Caddy processes with the plugin over HTTP. Behind the queue stands an upstream in the test
// process that notes on the monotonic clock who was inside when.
package integration_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// setup describes a Caddy process. Its texts are parts of a Caddyfile, in which
// {$PORT}, {$DIR} and {$UPSTREAM} and what env names are filled in.
type setup struct {
	site     string              // what is inside the block of the site {$SITE}
	global   string              // more global options
	servers  string              // more options of servers
	more     string              // more sites and snippets, after the global options
	tls      bool                // serve HTTPS, and HTTP/2 and HTTP/3 with it
	dir      string              // {$DIR}, the lock directory; default a new one
	upstream *testcaddy.Upstream // {$UPSTREAM}; default a new one
	env      map[string]string   // further {$NAME}s
	user     *user               // who runs it; default: the user of the test
	launcher []string            // a command that starts the command it is given
	files    []*os.File          // open files for it, from number 3
}

// user is a user of the system.
type user struct{ uid, gid uint32 }

// caddy is a Caddy process.
type caddy struct {
	*testcaddy.Server
	*testcaddy.Upstream
	t     testing.TB
	setup setup
	dir   string // the lock directory
	home  string
	port  int
	url   string // of the site
}

// behindQueue is a site whose queue has more options than its path.
func behindQueue(options string) string {
	return `serialize {
	path {$DIR}
	` + options + `
}
reverse_proxy {$UPSTREAM} {
	header_up X-Token {http.serialize.token}
}`
}

var serialized = behindQueue("")

// startQueue starts a process whose site has a queue.
func startQueue(t testing.TB, options string) *caddy {
	t.Helper()
	return start(t, setup{site: behindQueue(options)})
}

// eachEngine runs a test with each engine that needs no other server.
func eachEngine(t *testing.T, test func(t *testing.T, engine string)) {
	for _, engine := range []string{"file", "memory"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, engine)
		})
	}
}

// another starts another process of the same queue.
func (c *caddy) another() *caddy {
	c.t.Helper()
	return start(c.t, c.setup)
}

// start starts a Caddy process and waits until it serves. It is killed when the
// test is over.
func start(t testing.TB, s setup) *caddy {
	t.Helper()
	c := launch(t, s)
	c.AwaitLoaded()
	return c
}

// startInVain starts a Caddy process that must not come up, and returns why it
// did not.
func startInVain(t testing.TB, s setup) string {
	t.Helper()
	c := launch(t, s)
	c.AwaitEnd()
	if c.Err == nil {
		t.Fatalf("Caddy ended without an error\n%s", c.Log)
	}
	return c.Log.String()
}

func launch(t testing.TB, s setup) *caddy {
	t.Helper()
	if s.dir == "" {
		s.dir = testcaddy.TempDir(t)
	}
	if s.upstream == nil {
		s.upstream = testcaddy.NewUpstream(t)
	}
	c := &caddy{t: t, Upstream: s.upstream, setup: s, dir: s.dir, home: testcaddy.TempDir(t)}
	c.port = int(netip.MustParseAddrPort(testprocess.FreeAddr(t)).Port())
	scheme, host := "http", "127.0.0.1"
	if s.tls {
		scheme, host = "https", "localhost"
	}
	c.url = fmt.Sprintf("%s://%s:%d", scheme, host, c.port)
	settings := testcaddy.Settings{
		Caddyfile: c.caddyfile(s), Home: c.home, Admin: "unix/" + filepath.Join(c.home, "admin"),
		Env: c.env(), Files: s.files, Launcher: s.launcher,
	}
	if u := s.user; u != nil {
		check(t, os.Chown(c.home, int(u.uid), int(u.gid)))
		settings.System = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid}}
	}
	c.Server = testcaddy.Launch(t, settings)
	return c
}

// env is the environment of the process.
func (c *caddy) env() []string {
	env := []string{
		"CERTIFICATE=" + certificate.cert, "KEY=" + certificate.key, "SITE=" + c.url, "DIR=" + c.dir,
		fmt.Sprintf("PORT=%d", c.port), "UPSTREAM=" + c.Upstream.Addr,
	}
	for name, value := range c.setup.env {
		env = append(env, name+"="+value)
	}
	return env
}

// caddyfile is the whole Caddyfile of a setup.
func (c *caddy) caddyfile(s setup) string {
	return fmt.Sprintf(`{
	admin {$ADMIN}
	persist_config off
	auto_https off
	log {
		output stderr
		format json
	}
	servers {
		protocols h1 h2 h3
		%s
	}
	%s
}

%s
%s
`, s.servers, s.global, s.more, s.block())
}

// block is the site's block.
func (s setup) block() string {
	if s.site == "" {
		return ""
	}
	tls := ""
	if s.tls {
		tls = "tls {$CERTIFICATE} {$KEY}\n"
	}
	return "{$SITE} {\n" + tls + s.site + "\n}"
}

// reload loads a setup into the running process, and waits until only the new
// configuration takes connections.
func (c *caddy) reload(s setup) error {
	err := c.Load("text/caddyfile", c.caddyfile(s))
	c.awaitOneListener()
	return err
}

// awaitOneListener waits until only the new configuration takes connections.
func (c *caddy) awaitOneListener() {
	c.t.Helper()
	testcaddy.AwaitOneListener(c.t, c.host())
}

// host is the site's address and port.
func (c *caddy) host() string { return fmt.Sprintf("127.0.0.1:%d", c.port) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// guardFile is the one file that stays in a lock directory for good.
const guardFile = ".orderly-guard"

// lockFiles lists the tickets in a directory.
func lockFiles(t testing.TB, dir string) (names []string) {
	t.Helper()
	for _, name := range fileNames(t, dir) {
		if !strings.HasPrefix(name, ".orderly-") {
			names = append(names, name)
		}
	}
	return names
}

func fileNames(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// awaitHit waits until the request with a name has entered the upstream.
func (c *caddy) awaitHit(name string) (hit *testcaddy.Hit) {
	c.t.Helper()
	wait.Until(c.t, name+" has entered", func() bool {
		hit = c.Hit(name)
		return hit != nil
	})
	return hit
}

// wantOrder fails the test unless the upstream saw exactly these requests, in this order.
func (c *caddy) wantOrder(names ...string) {
	c.t.Helper()
	if got := c.Order(); !slices.Equal(got, names) {
		c.t.Errorf("the upstream saw %v, want %v", got, names)
	}
}

// wantAlone fails the test if two requests were in the upstream at the same time.
func (c *caddy) wantAlone() {
	c.t.Helper()
	var left time.Time
	for _, hit := range c.Hits() {
		if hit.Entered.Before(left) {
			c.t.Errorf("%s entered beside another one", hit.Name)
		}
		if left = hit.Left; left.IsZero() {
			left = time.Now()
		}
	}
}

// awaitTickets waits until there are n tickets in the lock directory. A ticket is removed
// after the turn has been handed on.
func (c *caddy) awaitTickets(n int) {
	c.t.Helper()
	if !wait.Poll(wait.Patience, func() bool { return len(lockFiles(c.t, c.dir)) == n }) {
		c.t.Fatalf("%d tickets in the lock directory: not so after %v, but %v", n, wait.Patience, lockFiles(c.t, c.dir))
	}
}

// wantOnlyGuard fails the test if anything but the guard file is left in the
// lock directory.
func (c *caddy) wantOnlyGuard() {
	c.t.Helper()
	for _, name := range fileNames(c.t, c.dir) {
		if name != guardFile {
			c.t.Errorf("left in the lock directory: %s", name)
		}
	}
}

type entry = testprocess.Entry

// awaitEntryOf waits until the log has an entry with a message, and returns the
// first one.
func (c *caddy) awaitEntryOf(message string) entry {
	c.t.Helper()
	return c.awaitEntry("the log says "+message, func(e entry) bool { return e["msg"] == message })
}

func (c *caddy) awaitEntry(what string, wanted func(entry) bool) entry {
	c.t.Helper()
	var found []entry
	wait.Until(c.t, what, func() bool {
		found = c.Log.All(wanted)
		return len(found) > 0
	})
	return found[0]
}

// entries returns the lines with a message.
func (c *caddy) entries(message string) []entry {
	return c.Log.All(func(e entry) bool { return e["msg"] == message })
}

// awaitEntries waits for a number of lines with a message.
func (c *caddy) awaitEntries(message string, n int) (found []entry) {
	c.t.Helper()
	wait.Until(c.t, "the log has all lines "+message, func() bool {
		found = c.entries(message)
		return len(found) == n
	})
	return found
}

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

func TestMain(m *testing.M) {
	wait.InParallel()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "orderly")
	defer os.RemoveAll(dir)
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), makeCertificate(dir)) // other users run what is in it, too
	}
	if err == nil {
		testcaddy.Program, err = program(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	chromiums.dir, chromiums.running = dir, make(map[string]*chromium)
	defer closeChromiums()
	return m.Run()
}

// program is the Caddy under test. The test binary itself is in a directory that
// other users may not pass.
func program(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "caddy")
	if os.Link(self, binary) == nil {
		return binary, nil
	}
	content, err := os.ReadFile(self) // on another file system
	if err != nil {
		return "", err
	}
	return binary, os.WriteFile(binary, content, 0o755)
}

// certificate names the files of the certificate of sites with TLS, where HAProxy finds the key, too. Caddy could
// make its own, but not at once.
var certificate struct{ cert, key string }

// makeCertificate writes the certificate of Go's test servers, which are for others, but clients here do not check that.
func makeCertificate(dir string) error {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	certificate.cert, certificate.key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "cert.pem.key")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	return errors.Join(err, os.WriteFile(certificate.cert, cert, 0o644),
		os.WriteFile(certificate.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o644))
}
