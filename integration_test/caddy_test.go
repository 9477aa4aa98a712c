//go:build unix

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

const patience = testcaddy.Patience

// setup describes a Caddy process. Its texts are parts of a Caddyfile, in which
// {$PORT}, {$DIR} and {$UPSTREAM} and what env names are filled in.
type setup struct {
	site     string              // what is inside the block of the site {$SITE}
	global   string              // more global options
	servers  string              // more options of servers
	more     string              // more sites and snippets, after the global options
	tls      bool                // serve HTTPS, and HTTP/2 and HTTP/3 with it
	dir      string              // {$DIR}, the lock directory; default a new one
	upstream *testcaddy.Upstream // {$UPSTREAM}
	env      map[string]string   // further {$NAME}s
	user     *user               // who runs it; default whoever runs the test
	launcher []string            // a command that starts the command it is given
	files    []*os.File          // open files for it, from number 3
}

// user is a user of the system.
type user struct{ uid, gid uint32 }

// caddy is a Caddy process.
type caddy struct {
	*testcaddy.Process
	t       testing.TB
	setup   setup
	dir     string // the lock directory
	home    string
	port    int
	url     string // of the site
	control string // the socket of the admin API
	admin   *http.Client
}

// start starts a Caddy process and waits until it serves. It is killed when the
// test is over.
func start(t testing.TB, s setup) *caddy {
	t.Helper()
	c := launch(t, s)
	c.AwaitText("serving initial configuration")
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
	c := &caddy{t: t, setup: s, dir: s.dir, home: tempDir(t)}
	if c.dir == "" {
		c.dir = tempDir(t)
	}
	c.control = filepath.Join(c.home, "admin")
	c.admin = unixClient(c.control)
	c.port = s.freePort(t)
	scheme, host := "http", "127.0.0.1"
	if s.tls {
		scheme, host = "https", "localhost"
	}
	c.url = fmt.Sprintf("%s://%s:%d", scheme, host, c.port)
	config := filepath.Join(c.home, "Caddyfile")
	writeFile(t, config, c.caddyfile(s))
	if s.user != nil {
		check(t, os.Chown(c.home, int(s.user.uid), int(s.user.gid)))
	}
	c.run("run", "--config", config, "--adapter", "caddyfile")
	return c
}

// caddyfile is the whole Caddyfile of a setup.
func (c *caddy) caddyfile(s setup) string {
	return fmt.Sprintf(`{
	admin unix/{$ADMIN}
	persist_config off
	auto_https off
	log {
		output stderr
		format json
	}
	servers {
		protocols %s
		%s
	}
	%s
}

%s
%s
`, s.protocols(), s.servers, s.global, s.more, s.block())
}

func (s setup) protocols() string {
	if s.tls {
		return "h1 h2 h3"
	}
	return "h1 h2"
}

// block is the site's block.
func (s setup) block() string {
	switch {
	case s.site == "":
		return ""
	case s.tls:
		return "{$SITE} {\ntls {$CERTIFICATE} {$KEY}\n" + s.site + "\n}"
	}
	return "{$SITE} {\n" + s.site + "\n}"
}

// freePort finds a port for the site. Users do not share ports with each other:
// another user's Caddy gets one that is merely free right now.
func (s setup) freePort(t testing.TB) int {
	t.Helper()
	addr := testcaddy.ReserveAddr
	if s.user != nil {
		addr = testcaddy.FreeAddr
	}
	return int(netip.MustParseAddrPort(addr(t)).Port())
}

// run runs the command caddy as the setup says.
func (c *caddy) run(args ...string) {
	cmd := testcaddy.CommandIn(c.t, c.home, args...)
	cmd.Env = append(cmd.Env, "CERTIFICATE="+certificate.cert, "KEY="+certificate.key,
		"ADMIN="+c.control, "SITE="+c.url, "DIR="+c.dir, fmt.Sprintf("PORT=%d", c.port))
	if c.setup.upstream != nil {
		cmd.Env = append(cmd.Env, "UPSTREAM="+c.setup.upstream.Addr)
	}
	for name, value := range c.setup.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if launcher := c.setup.launcher; launcher != nil {
		cmd.Path = testcaddy.Need(c.t, launcher[0], "apt-get install util-linux")
		cmd.Args = slices.Concat(launcher, cmd.Args)
	}
	cmd.ExtraFiles = c.setup.files
	if u := c.setup.user; u != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid}}
	}
	c.Process = testcaddy.StartProcess(c.t, cmd)
}

// reload loads a setup into the running process, and waits until only the new
// configuration takes connections.
func (c *caddy) reload(s setup) error {
	err := c.load("text/caddyfile", c.caddyfile(s))
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

// load loads a configuration through the admin API.
func (c *caddy) load(contentType, config string) error {
	r := c.adminAPI("POST", "/load", config, "Content-Type: "+contentType)
	if r.Err != nil {
		return r.Err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", r.StatusCode, r.Text)
	}
	return nil
}

// ask gets a path of the admin API.
func (c *caddy) ask(path string) string {
	c.t.Helper()
	r := c.adminAPI("GET", path, "")
	if r.Err != nil || r.StatusCode != http.StatusOK {
		c.t.Fatalf("admin API, %s: %v", path, r)
	}
	return r.Text
}

// adminAPI makes a request to the admin API. Every configuration has a new
// listener for it, and the old one may close before it has accepted a
// connection. So a request without an answer is repeated.
func (c *caddy) adminAPI(method, path, body string, header ...string) (r testcaddy.Answer) {
	for range 5 {
		if r = do(c.admin, method, "http://admin"+path, body, header...); r.Err == nil {
			break
		}
	}
	return r
}

func unixClient(socket string) *http.Client {
	return &http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			},
		},
	}
}

func tempDir(t testing.TB) string {
	t.Helper()
	return testcaddy.TempDir(t)
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	testcaddy.WriteFile(t, path, text)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something is so.
func eventually(t testing.TB, within time.Duration, what string, so func() bool) {
	t.Helper()
	if err := poll(within, so); err != nil {
		t.Fatalf("%s: not so after %v", what, within)
	}
}

var errNotSo = errors.New("not so")

func poll(within time.Duration, so func() bool) error {
	for end := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		if so() {
			return nil
		}
		if time.Now().After(end) {
			return errNotSo
		}
	}
}
