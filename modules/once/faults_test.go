//go:build unix

package once_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// After a crash nobody knows whether the upstream has acted, and no other request runs. Storage that
// fails lets nothing through. If it fails after the upstream has acted, or has damaged the record,
// nothing is known to repetitions. Neither the records nor the log tell keys, scopes or answers.
//
// An operator finds each order in doubt in the log, also if no client asks again. Bug: it named
// one in a second of those whose outcome could not be stored.
func TestFaults(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewGatedUpstream(t)
	here := newSite(t, "once {\nscope private-scope\nkey {http.request.uri.query.name}\n}\nreverse_proxy "+upstream.Addr)
	folder := filepath.Join(here.settings.Home, "caddy", "orderly")
	away := func() { _ = os.Rename(folder, folder+".away") }
	nothing, crash := func() {}, func() { here.Kill(); here.start() }
	isFile := func() { away(); testcaddy.WriteFile(t, folder, "") }
	isNowhere := func() { away(); _ = os.Symlink("nowhere", folder) }
	isBack := func() { _ = os.Remove(folder); _ = os.Rename(folder+".away", folder) }
	records := func() map[string]string {
		files, _ := filepath.Glob(filepath.Join(folder, "once", "*", "*"))
		texts := make(map[string]string)
		for _, file := range files {
			text, _ := os.ReadFile(file)
			texts[file] = string(text)
		}
		return texts
	}
	damage := func(how func(text []byte) []byte) func() {
		return func() {
			for file, text := range records() {
				if text != "" {
					testcaddy.WriteFile(t, file, string(how([]byte(text))))
				}
			}
		}
	}
	send := func(key string) <-chan testcaddy.Answer {
		return testcaddy.Send(t, http.MethodPost, here.url+"/?status=201&name="+key, "")
	}
	runs := func(key string) { wait.Until(t, "the first runs", func() bool { return upstream.Hit(key) != nil }) }
	outcome := func(a testcaddy.Answer) string { return fmt.Sprint(a.StatusCode, " ", a.Header.Get("Orderly-Once")) }
	for i, c := range []struct {
		name                 string
		before, while, after func() // what happens before the first request, while it runs, and after it
		first, again         string // the answers of the first request and of a repetition: status and reason
	}{
		{"a crash", nothing, crash, nothing, "0 ", "409 unknown"},
		{"a crash afterwards", nothing, nothing, crash, "201 ", "201 "},
		{"a file in place of the folder", isFile, nothing, isBack, "503 storage", "201 "},
		{"no folder can be made", isNowhere, nothing, isBack, "503 storage", "201 "},
		{"no folder can be made later", nothing, isNowhere, isBack, "201 ", "409 unknown"},
		{"an empty record", nothing, nothing, damage(func([]byte) []byte { return nil }), "201 ", "409 unknown"},
		{"a short record", nothing, nothing, damage(func(b []byte) []byte { return b[:len(b)-1] }), "201 ", "409 unknown"},
		{"a changed record", nothing, nothing, damage(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), "201 ", "409 unknown"},
	} {
		key := fmt.Sprint("private-key-", i)
		c.before()
		answer := send(key)
		if c.first != "503 storage" {
			runs(key)
		}
		c.while()
		upstream.Open(key)
		if a := <-answer; outcome(a) != c.first {
			t.Errorf("%s: the first answer: %v", c.name, a)
		}
		for file, text := range records() {
			if strings.Contains(file+text, "private-") {
				t.Errorf("%s: %q", file, text)
			}
		}
		c.after()
		a := testcaddy.Await(t, send(key))
		effects := slices.DeleteFunc(upstream.Order(), func(name string) bool { return name != key })
		if outcome(a) != c.again || len(effects) != 1 {
			t.Errorf("%s: then: %v; %d effects", c.name, a, len(effects))
		}
		if log := here.Log.String(); strings.Contains(log, "private-") || !strings.Contains(log, "the scope has no placeholder") {
			t.Errorf("the log tells a key or a scope, or does not warn of a scope that all clients share: %s", log)
		}
	}
	one, another := send("one"), send("another")
	runs("one")
	runs("another")
	isFile()
	upstream.Open("one")
	upstream.Open("another")
	testcaddy.Await(t, one).Want(t, 201)
	testcaddy.Await(t, another).Want(t, 201)
	wait.Until(t, "the log names both, and the one before", func() bool {
		return strings.Count(here.Log.String(), "could not be stored") == 3
	})
	if metrics := here.Ask("/metrics"); !strings.Contains(metrics, `caddy_once_requests_total{outcome="first"} 8`) {
		t.Errorf("metrics: %s", metrics)
	}
}
