package testcaddy

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// Server is a running Caddy with an admin API.
type Server struct {
	*Process
	Admin string // host:port
}

// Start runs Caddy with a Caddyfile until the end of the test. It adds a global option
// for the admin API to the Caddyfile. If the Caddyfile has its own global options, they
// must contain "admin {$ADMIN}".
func Start(t testing.TB, caddyfile string, env ...string) *Server {
	t.Helper()
	admin := ReserveAddr(t)
	file := filepath.Join(TempDir(t), "Caddyfile")
	WriteFile(t, file, withAdmin(caddyfile))
	cmd := Command(t, "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(append(cmd.Env, "ADMIN="+admin), env...)
	s := &Server{Process: StartProcess(t, cmd), Admin: admin}
	s.awaitAdmin()
	return s
}

func withAdmin(caddyfile string) string {
	if strings.Contains(caddyfile, "{$ADMIN}") {
		return caddyfile
	}
	return "{\n\tadmin {$ADMIN}\n}\n" + caddyfile
}

// awaitAdmin returns when the configuration is loaded: only then does the admin API
// return one. The log may not show it.
func (s *Server) awaitAdmin() {
	s.t.Helper()
	s.Eventually("caddy has its configuration", func() error {
		select {
		case <-s.Ended:
			s.t.Fatalf("caddy ended: %v", s.Err)
		default:
		}
		resp, err := http.Get("http://" + s.Admin + "/config/")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if strings.TrimSpace(string(text)) == "null" {
			return errors.New("no configuration yet")
		}
		return err
	})
}

// Reload loads another Caddyfile.
func (s *Server) Reload(caddyfile string) {
	s.t.Helper()
	text := strings.ReplaceAll(withAdmin(caddyfile), "{$ADMIN}", s.Admin)
	resp, err := http.Post("http://"+s.Admin+"/load", "text/caddyfile", strings.NewReader(text))
	if err != nil {
		s.t.Fatalf("reloading caddy: %v", err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		s.t.Fatalf("reloading caddy: %s: %s", resp.Status, answer)
	}
	AwaitOneListener(s.t, s.Admin)
}

// Eventually calls try until it returns nil, or Patience has passed.
func (s *Server) Eventually(what string, try func() error) {
	s.t.Helper()
	Eventually(s.t, what, try)
}
