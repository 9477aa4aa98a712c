//go:build unix

package integration_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// nobody is a user without rights. Only root can become another.
func nobody(t *testing.T) *user {
	t.Helper()
	testcaddy.NeedRoot(t, "run Caddy as another user")
	return &user{uid: 65534, gid: 65534}
}

// A configuration that cannot work is refused when it is loaded. The message names the
// directory.
func TestLoadErrors(t *testing.T) {
	t.Parallel()
	const opening = "opening lock directory"
	denied := []string{"permission denied", "runs as user 65534", "its files .orderly-*", "chown", "usermod -aG"}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, s *setup)
		want    []string
	}{
		"directory below a file": {func(t *testing.T, s *setup) {
			testcaddy.WriteFile(t, filepath.Join(s.dir, "file"), "")
			s.dir = filepath.Join(s.dir, "file", "locks")
		}, []string{opening, "not a directory"}},
		"directory of another user": {func(t *testing.T, s *setup) { s.user = nobody(t) }, append(denied, guardFile)},
		"directory that another user may not make": {func(t *testing.T, s *setup) { s.user, s.dir = nobody(t), filepath.Join(s.dir, "a", "b") },
			append(denied, opening)},
		// Bug: after `caddy validate` by root, the message named a command that changed nothing.
		"file of root": {func(t *testing.T, s *setup) {
			s.user = nobody(t)
			testcaddy.WriteFile(t, filepath.Join(s.dir, guardFile), "")
			check(t, errors.Join(os.Chown(s.dir, 65534, 0), os.Chmod(filepath.Join(s.dir, guardFile), 0o640)))
		}, append(denied, guardFile)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{site: serialized, dir: testcaddy.TempDir(t)}
			test.prepare(t, &s)
			log := startInVain(t, s)
			for _, want := range append(test.want, s.dir) {
				if !strings.Contains(log, want) {
					t.Errorf("the log does not mention %q:\n%s", want, log)
				}
			}
		})
	}
}

// A load, or its first request, warns of what may be a mistake. Bug: it said nothing, or nothing with `engine file`, or that the same methods in another order differ.
func TestLoadWarnings(t *testing.T) {
	t.Parallel()
	dir := testcaddy.TempDir(t)
	c := start(t, setup{dir: filepath.Join(dir, "queues"), env: map[string]string{"ROOT": dir, "OTHER": testcaddy.TempDir(t)},
		site: "handle /five {\nserialize {\n path {$DIR}\n hold_at_least 6s\n}\n}\n" +
			"serialize /a r_ {\n shared_methods GET HEAD\n}\nserialize /b r_ {\n shared_methods head get\n}\n" +
			"handle /none {\nroot {$ROOT}\nserialize root_ {\n path {$DIR}\n engine file\n}\nfile_server\n}\nrespond hello",
		more: `http://one.example:{$PORT} {
			serialize {
				path {$DIR}
				waiting_page
			}
			respond hello
		}
		http://two.example:{$PORT} {
			serialize {
				path {$OTHER}
				prefix x_{header.No-Such}{no.such.placeholder}_
				timeout 1m
				waiting_page
			}
			respond hello
		}`,
	})
	for range 2 {
		c.get("/none").Want(t, http.StatusNotFound)
	}
	c.End(os.Interrupt) // so that the test has all of the log
	warnings := c.Log.All(func(e entry) bool {
		return e["level"] == "warn" && strings.HasPrefix(e.Text("logger"), "http.handlers.serialize")
	})
	texts := make(map[string]int)
	for _, e := range warnings {
		texts[e.Text("msg")]++
		switch msg := e.Text("msg"); {
		case strings.Contains(msg, "differ in concurrency"):
			sites := e.Text("site") + e.Text("other_site")
			if !strings.Contains(sites, "one.example at :") || !strings.Contains(sites, "127.0.0.1") ||
				!strings.Contains(e.Text("settings")+e.Text("other_settings"), "concurrency 1, hold_at_least 6s") {
				t.Errorf("the warning is %v", e)
			}
		case strings.Contains(msg, "waiting_page has no timeout"):
		case strings.Contains(msg, "below a root"):
			if e["path"] != c.dir || e["root"] != dir {
				t.Errorf("the warning is %v", e)
			}
		default:
			t.Errorf("an unexpected warning: %v", e)
		}
	}
	if len(texts) != 3 || len(warnings) != 3 {
		t.Errorf("%d warnings: %v", len(warnings), texts)
	}
}

// A rejected configuration leaves nothing, also of its lines that could work. What others
// use stays, and so does the running configuration. Bug: it left directories, and fifteen series of metrics for each line.
func TestRejectedLeavesNothing(t *testing.T) {
	t.Parallel()
	const lines = "serialize {\n path {$DIR}/a/b\n prefix rejected_\n}\nserialize {\n path {$PUBLIC}\n}\nserialize {\n path {$DIR}/used\n}\n"
	dir, public := testcaddy.TempDir(t), testcaddy.TempDir(t)
	check(t, os.Chmod(public, 0o777|os.ModeSticky)) // this user gets a directory there
	testcaddy.WriteFile(t, filepath.Join(dir, "file"), "")
	bad := strings.Replace(lines, "{$PUBLIC}", public, 1) + "serialize {\n path {$DIR}/file\n}\nrespond hello"
	startInVain(t, setup{dir: dir, site: bad})
	if names := fileNames(t, dir); len(names) != 1 {
		t.Errorf("a start left %q", names)
	}
	if names := fileNames(t, public); len(names) > 0 {
		t.Errorf("a start left %q where everybody may write", names)
	}
	c := start(t, setup{dir: dir, global: "metrics", site: "serialize {\n path {$DIR}/used\n}\nrespond before"})
	if err := c.reload(setup{global: "metrics", site: bad}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "file")) {
		t.Errorf("reload: %v, want an error that names the file", err)
	}
	if names := fileNames(t, dir); len(names) != 2 {
		t.Errorf("a reload left %q", names)
	}
	if text := c.API("GET", "/metrics", "").Text; strings.Contains(text, "rejected_") || !strings.Contains(text, "caddy_serialize") {
		t.Errorf("a reload left metrics:\n%s", text)
	}
	if r := c.get("/").Want(t, http.StatusOK); r.Text != "before" {
		t.Errorf("after the reload, it answers %q", r.Text)
	}
}

// Root tries a service's configuration by hand: it validates and runs it, and the process
// is killed while a request is inside. Bug: the service could not open the files left
// behind, and waited for those tickets for ever.
func TestRootBesideService(t *testing.T) {
	t.Parallel()
	service := nobody(t)
	above := testcaddy.TempDir(t)
	check(t, os.Chown(above, int(service.uid), int(service.gid)))
	dir := filepath.Join(above, "queues") // validate makes it
	upstream := testcaddy.NewUpstream(t)
	s := setup{upstream: upstream, dir: dir, site: serialized}

	byHand := start(t, s)
	byHand.holder(t)
	byHand.Kill()
	byHand.Open("holder")
	validate := testcaddy.CommandIn(t, byHand.home, "validate", "--config", filepath.Join(byHand.home, "Caddyfile"), "--adapter", "caddyfile")
	validate.Env = append(append(validate.Env, "ADMIN="+byHand.Admin), byHand.env()...)
	if _, errs, code := testcaddy.OutputOf(t, validate); code != 0 {
		t.Errorf("caddy validate: %s", errs)
	}

	s.user = service
	c := start(t, s)
	c.get("/?name=service").Want(t, http.StatusOK)
	c.wantOrder("holder", "service")
	c.awaitTickets(0)
}
