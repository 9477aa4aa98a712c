//go:build unix

package once_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// After a crash nobody knows whether the upstream has acted, and no other request runs. What was
// stored before is repeated.
func TestCrash(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newSite(t, "once {\nscope none\n}\nreverse_proxy "+s.addr)
	first := post(t, c.url, "", "before")
	testcaddy.Send(t, http.MethodPost, c.url+"/?do=wait", "", "Idempotency-Key", "a")
	wait.Until(t, "the first runs", func() bool { return s.count("a") == 1 })
	c.Kill()
	close(s.gate)
	c.start()
	if a := post(t, c.url+"/?do=wait", "", "a"); a.StatusCode != 409 || a.Header.Get("Orderly-Once") != "unknown" {
		t.Errorf("after a crash: %v", a)
	}
	if a := post(t, c.url, "", "before"); a.Text != first.Text || s.count("before") != 1 {
		t.Errorf("what was stored before: %v", a)
	}
}

// A reload ends no first request, and its repetitions wait for it.
func TestReload(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newSite(t, "once {\nscope none\n}\nreverse_proxy "+s.addr)
	send := func() <-chan testcaddy.Answer {
		return testcaddy.Send(t, http.MethodPost, c.url+"/?do=wait", "", "Idempotency-Key", "a")
	}
	first := send()
	wait.Until(t, "the first runs", func() bool { return s.count("a") == 1 })
	if err := c.Load("text/caddyfile", strings.ReplaceAll(c.settings.Caddyfile, "scope none", "scope none\nkeep 3d")); err != nil {
		t.Fatal(err)
	}
	testcaddy.AwaitOneListener(t, c.addr)
	second := send()
	close(s.gate)
	for i, answer := range []<-chan testcaddy.Answer{first, second} {
		if a := testcaddy.Await(t, answer); a.Text != "1" {
			t.Errorf("answer %d: %v", i, a)
		}
	}
}

// A damaged record means that nothing is known. Records tell neither keys nor answers.
func TestRecordsInFiles(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newSite(t, "once {\nscope private-scope\nkey {http.request.uri.query.key}\n}\nreverse_proxy "+s.addr)
	if !strings.Contains(c.Log.String(), "the scope has no placeholder") {
		t.Error("nothing warns of a scope that all clients share")
	}
	for i, damage := range []func([]byte) []byte{
		func([]byte) []byte { return nil },
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func(b []byte) []byte { b[0]++; return b },
	} {
		key := "private-key-" + string(rune('a'+i))
		post(t, c.url+"/?status=201&key="+key, "", "").Want(t, 201)
		for _, file := range c.records() {
			text, _ := os.ReadFile(file)
			if strings.Contains(file+string(text), "private") || strings.Contains(string(text), "201") {
				t.Errorf("%s: %q", file, text)
			}
			if err := os.WriteFile(file, damage(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if a := post(t, c.url+"/?status=201&key="+key, "", ""); a.Header.Get("Orderly-Once") != "unknown" || s.count(key) != 1 {
			t.Errorf("damage %d: %v", i, a)
		}
		for _, file := range c.records() {
			_ = os.Remove(file)
		}
	}
	if log := c.Log.String(); strings.Contains(log, "private-") {
		t.Errorf("the log has a key or a scope: %s", log)
	}
}

// Storage that fails lets nothing through. If it fails after the upstream has acted, nothing is known
// to repetitions.
func TestFaultyStorage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault        func(folder string) error
		later        bool // when the upstream has the request
		first, again string
		effects      int
	}{
		"a file in place of the folder": {func(folder string) error { return os.WriteFile(folder, nil, 0o600) }, false, "503 storage", "200 ", 1},
		"no folder can be made":         {func(folder string) error { return os.Symlink("nowhere", folder) }, false, "503 storage", "200 ", 1},
		"later":                         {func(folder string) error { return os.Symlink("nowhere", folder) }, true, "200 ", "409 unknown", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			site := newSite(t, "once {\nscope none\n}\nreverse_proxy "+s.addr)
			folder := filepath.Join(site.settings.Home, "caddy", "orderly")
			fault := func() {
				_ = os.Rename(folder, folder+".away")
				if err := c.fault(folder); err != nil {
					t.Fatal(err)
				}
			}
			if !c.later {
				fault()
			}
			answer := testcaddy.Send(t, http.MethodPost, site.url+"/?do=wait", "", "Idempotency-Key", "a")
			if c.later {
				wait.Until(t, "the first runs", func() bool { return s.count("a") == 1 })
				fault()
			}
			close(s.gate)
			if a := testcaddy.Await(t, answer); outcome(a) != c.first {
				t.Errorf("the first answer: %v", a)
			}
			_ = os.Remove(folder)
			_ = os.Rename(folder+".away", folder)
			if a := post(t, site.url+"/?do=wait", "", "a"); outcome(a) != c.again || s.count("a") != c.effects {
				t.Errorf("then: %v; %d effects", a, s.count("a"))
			}
		})
	}
}

func outcome(a testcaddy.Answer) string { return a.Status[:3] + " " + a.Header.Get("Orderly-Once") }

// What makes no sense is refused when the configuration is loaded.
func TestLoadErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ options, says string }{
		{"", "scope: missing; expected whose keys these are"},
		{`scope ""`, "scope: missing"},
		{"scope none\nbuffer off", "line 5: buffer off: expected a size from 0 to 1GiB"},
		{"scope none\nkeep 8d", "line 5: keep 192h0m0s: expected a duration of at most 7d"},
		{"scope none\nkeep 0", "line 5: keep 0s: expected a duration of 1s or more"},
		{"scope none\nmethods P!", `line 5: methods: "P!" is not a request method`},
		{"scope none\nmax_response 65MiB", "line 5: max_response 68157440: expected a size from 1 to 64MiB"},
		{"scope none\ncompare all", `line 5: compare "all": expected body or none`},
		{"scope none\nkey fixed", `line 5: key "fixed": expected a text with a placeholder`},
		{"scope none\nrepeat_header a:b", `line 5: repeat_header: "a:b" is not the name of a field`},
		{"scope none\nresponse_buffer 1", `line 5: once: unknown subdirective "response_buffer"; expected one of key, scope`},
		{"scope none\nengine nothing", `line 5: engine "nothing": there is none of this name`},
		{"scope none", ""},
	} {
		file := filepath.Join(testcaddy.TempDir(t), "Caddyfile")
		testcaddy.WriteFile(t, file, ":"+port(testprocess.FreeAddr(t))+" {\nroute {\nonce {\n"+c.options+"\n}\n}\n}\n")
		_, errs, code := testcaddy.Output(t, "validate", "--config", file)
		says, atLine := strings.CutPrefix(c.says, "line 5: ")
		errs = strings.ReplaceAll(errs, `\"`, `"`) // in the log
		if !strings.Contains(errs, says) || atLine && !strings.Contains(errs, "Caddyfile:5") || (code == 0) != (says == "") {
			t.Errorf("%s: exit code %d, expected an error that says %s:\n%s", c.options, code, c.says, errs)
		}
	}
	for _, engine := range []string{"file", "memory"} {
		file := filepath.Join(testcaddy.TempDir(t), "Caddyfile")
		testcaddy.WriteFile(t, file, "{\nstorage other\n}\n:"+port(testprocess.FreeAddr(t))+" {\nonce {\nscope none\nengine "+engine+"\n}\n}\n")
		if _, errs, code := testcaddy.Output(t, "validate", "--config", file); code == 0 || !strings.Contains(errs, "expected one of several machines, such as etcd, redis or postgres") {
			t.Errorf("engine %s with another storage than files: %d %s", engine, code, errs)
		}
	}
}
