//go:build unix

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come, but has no promised
// time. It is long because machines under load are slow.
const patience = 30 * time.Second

// setup describes a Caddy process. Its texts are parts of a Caddyfile, in which
// {$PORT}, {$DIR} and {$BACKEND} and what env names are filled in.
type setup struct {
	site     string            // what is inside the block of the site {$SITE}
	global   string            // more global options
	servers  string            // more options of servers
	more     string            // more sites and snippets, after the global options
	tls      bool              // serve HTTPS, and HTTP/2 and HTTP/3 with it
	dir      string            // {$DIR}, the lock directory; default a new one
	backend  *backend          // {$BACKEND}
	env      map[string]string // further {$NAME}s
	user     *user             // who runs it; default whoever runs the test
	launcher []string          // a command that starts the command it is given
	files    []*os.File        // open files for it, from number 3
}

// user is a user of the system.
type user struct{ uid, gid uint32 }

// caddy is a Caddy process.
type caddy struct {
	t       testing.TB
	setup   setup
	dir     string // the lock directory
	home    string
	port    int
	url     string // of the site
	control string // the socket of the admin API
	log     *logs
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process has ended
	err     error         // how it ended
	admin   *http.Client
}

// start starts a Caddy process and waits until it serves. It is killed when the
// test is over.
func start(t testing.TB, s setup) *caddy {
	t.Helper()
	c := launch(t, s)
	select {
	case <-c.log.seen("serving initial configuration"):
	case <-c.exited:
		t.Fatalf("Caddy did not start: %v\n%s", c.err, c.log)
	case <-time.After(patience):
		t.Fatalf("Caddy does not serve\n%s", c.log)
	}
	return c
}

// startInVain starts a Caddy process that must not come up, and returns why it
// did not.
func startInVain(t testing.TB, s setup) string {
	t.Helper()
	c := launch(t, s)
	select {
	case <-c.exited:
	case <-time.After(patience):
		t.Fatalf("Caddy has not ended\n%s", c.log)
	}
	if c.err == nil {
		t.Fatalf("Caddy ended without an error\n%s", c.log)
	}
	return c.log.String()
}

func launch(t testing.TB, s setup) *caddy {
	t.Helper()
	c := &caddy{t: t, setup: s, dir: s.dir, home: tempDir(t), log: newLogs(), exited: make(chan struct{})}
	if c.dir == "" {
		c.dir = tempDir(t)
	}
	c.control = filepath.Join(c.home, "admin")
	c.admin = unixClient(c.control)
	c.port = reservePort(t, s.user)
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

func (c *caddy) run(args ...string) {
	command := append(append(c.setup.launcher[:len(c.setup.launcher):len(c.setup.launcher)], caddyBinary), args...)
	c.cmd = exec.Command(command[0], command[1:]...)
	c.cmd.Env = append(os.Environ(), "HOME="+c.home, "XDG_DATA_HOME="+c.home, "XDG_CONFIG_HOME="+c.home,
		"CERTIFICATE="+certificate.cert, "KEY="+certificate.key, "ADMIN="+c.control, "SITE="+c.url, "DIR="+c.dir, fmt.Sprintf("PORT=%d", c.port))
	if c.setup.backend != nil {
		c.cmd.Env = append(c.cmd.Env, "BACKEND="+c.setup.backend.addr)
	}
	for name, value := range c.setup.env {
		c.cmd.Env = append(c.cmd.Env, name+"="+value)
	}
	c.cmd.Dir = c.home
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.ExtraFiles = c.setup.files
	c.cmd.SysProcAttr = endWithTest()
	if u := c.setup.user; u != nil {
		c.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid}
	}
	check(c.t, c.cmd.Start())
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	c.t.Cleanup(c.end)
}

// end kills the process if it still runs, and looks at what it leaves.
func (c *caddy) end() {
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
	_ = c.cmd.Process.Kill()
	<-c.exited
	if log := c.log.String(); strings.Contains(log, "WARNING: DATA RACE") {
		c.t.Errorf("a data race in Caddy\n%s", log)
	} else if c.t.Failed() {
		c.t.Logf("log of Caddy on port %d:\n%s", c.port, tail(log, 16<<10))
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// signal sends a signal to the process.
func (c *caddy) signal(sig syscall.Signal) {
	c.t.Helper()
	check(c.t, c.cmd.Process.Signal(sig))
}

// awaitExit waits for the process to end by itself.
func (c *caddy) awaitExit() {
	c.t.Helper()
	select {
	case <-c.exited:
	case <-time.After(patience):
		c.t.Fatalf("Caddy has not ended")
	}
}

// reload loads a setup into the running process, and waits until only the new
// configuration takes connections.
func (c *caddy) reload(s setup) error {
	err := c.load("text/caddyfile", c.caddyfile(s))
	c.awaitOneListener()
	return err
}

// load loads a configuration through the admin API.
func (c *caddy) load(contentType, config string) error {
	r := c.adminAPI("POST", "/load", config, "Content-Type: "+contentType)
	if r.err != nil {
		return r.err
	}
	if r.status != http.StatusOK {
		return fmt.Errorf("status %d: %s", r.status, r.body)
	}
	return nil
}

// ask gets a path of the admin API.
func (c *caddy) ask(path string) string {
	c.t.Helper()
	r := c.adminAPI("GET", path, "")
	if r.err != nil || r.status != http.StatusOK {
		c.t.Fatalf("admin API, %s: %v", path, r)
	}
	return r.body
}

// adminAPI makes a request to the admin API. With every configuration comes a
// new listener for it, and the old one may close on a connection that it has not
// accepted yet; so what was not answered is said again.
func (c *caddy) adminAPI(method, path, body string, header ...string) (r response) {
	for range 5 {
		if r = do(c.admin, method, "http://admin"+path, body, header...); r.err == nil {
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

// tempDir makes a directory with a short path, for sockets have short names,
// that other users may pass.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orderly")
	check(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	check(t, err)
	check(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	return dir
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o644))
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
