package testcaddy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Server is a running Caddy with an admin API.
type Server struct {
	*testprocess.Process
	Admin string // the address of the admin API: host:port or unix//path

	t      testing.TB
	client *http.Client // of the admin API
}

// Settings describe a Caddy process.
type Settings struct {
	Caddyfile string               // with the global option "admin {$ADMIN}"
	Admin     string               // {$ADMIN}; the default is a free port
	Home      string               // its home directory; the default is a new one
	Env       []string             // more environment variables, as NAME=value
	Files     []*os.File           // open files for it, from number 3 on
	System    *syscall.SysProcAttr // such as the user who runs it
	Launcher  []string             // a command of util-linux that runs the command in its last arguments
}

// Start runs Caddy with a Caddyfile until the end of the test, and waits until it has
// loaded it. It adds a global option for the admin API to the Caddyfile. If the Caddyfile
// has its own global options, they must contain "admin {$ADMIN}".
func Start(t testing.TB, caddyfile string, env ...string) *Server {
	t.Helper()
	if !strings.Contains(caddyfile, "{$ADMIN}") {
		caddyfile = "{\n\tadmin {$ADMIN}\n}\n" + caddyfile
	}
	s := Launch(t, Settings{Caddyfile: caddyfile, Env: env})
	s.AwaitLoaded()
	return s
}

// Launch runs Caddy until the end of the test, and does not wait for it.
func Launch(t testing.TB, settings Settings) *Server {
	t.Helper()
	if settings.Admin == "" {
		settings.Admin = testprocess.FreeAddr(t)
	}
	if settings.Home == "" {
		settings.Home = TempDir(t)
	}
	file := filepath.Join(settings.Home, "Caddyfile")
	WriteFile(t, file, settings.Caddyfile)
	cmd := CommandIn(t, settings.Home, "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(append(cmd.Env, "ADMIN="+settings.Admin), settings.Env...)
	cmd.ExtraFiles, cmd.SysProcAttr = settings.Files, settings.System
	if launcher := settings.Launcher; launcher != nil {
		cmd.Path = Need(t, launcher[0], "apt-get install util-linux")
		cmd.Args = slices.Concat(launcher, cmd.Args)
	}
	client := &http.Client{Timeout: wait.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if socket, ok := strings.CutPrefix(settings.Admin, "unix/"); ok {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", settings.Admin)
		},
	}}
	return &Server{Process: testprocess.Start(t, cmd), t: t, Admin: settings.Admin, client: client}
}

// API sends a request to the admin API. Every configuration has a new listener for it,
// and the old one may close before it has accepted a connection. So a request without an
// answer is repeated. It also works when the test is over, for its cleanup.
func (s *Server) API(method, path, body string, header ...string) (a Answer) {
	s.t.Helper()
	host := s.Admin
	if strings.HasPrefix(host, "unix/") {
		host = "admin"
	}
	for range 5 {
		if a = Do(s.client, newRequest(s.t, method, "http://"+host+path, body, header...).WithContext(context.Background())); a.Err == nil {
			break
		}
	}
	return a
}

// Ask gets a path of the admin API, and returns the text.
func (s *Server) Ask(path string) string {
	s.t.Helper()
	return s.API(http.MethodGet, path, "").Want(s.t, http.StatusOK).Text
}

// AwaitLoaded returns when the configuration is loaded: only then does the admin API
// return one. The log may not show it.
func (s *Server) AwaitLoaded() {
	s.t.Helper()
	wait.Eventually(s.t, "caddy has its configuration", func() error {
		s.WantRunning()
		a := s.API(http.MethodGet, "/config/", "")
		if a.Err == nil && strings.TrimSpace(a.Text) == "null" {
			return errors.New("no configuration yet")
		}
		return a.Err
	})
}

// Load loads a configuration in a format such as text/caddyfile.
func (s *Server) Load(contentType, config string) error {
	s.t.Helper()
	a := s.API(http.MethodPost, "/load", config, "Content-Type", contentType)
	if a.Err == nil && a.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", a.StatusCode, a.Text)
	}
	return a.Err
}

// AwaitOneListener waits until only one socket listens at an address. After a reload, that of
// the old configuration remains for a moment, and takes connections down with it.
func AwaitOneListener(t testing.TB, addr string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		time.Sleep(200 * time.Millisecond) // it does not list its sockets in files
	}
	// A line has the number, the local address, the remote one, and the state: 0A listens.
	listener := regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F:]+ 0A `, netip.MustParseAddrPort(addr).Port()))
	wait.Until(t, "one socket listens at "+addr, func() bool {
		v4, _ := os.ReadFile("/proc/net/tcp")
		v6, _ := os.ReadFile("/proc/net/tcp6")
		return len(listener.FindAll(append(v4, v6...), -1)) < 2
	})
}
