//go:build unix

package once_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// After a crash nobody knows whether the upstream has acted, and no other request runs. Storage that
// fails lets nothing through. If it fails after the upstream has acted, or has damaged the record,
// nothing is known to repetitions. Neither the records nor the log tell keys, scopes or answers.
func TestFaults(t *testing.T) {
	t.Parallel()
	folder := func(c *site) string { return filepath.Join(c.settings.Home, "caddy", "orderly") }
	records := func(c *site) []string {
		files, _ := filepath.Glob(filepath.Join(folder(c), "once", "*", "*"))
		return files
	}
	crash := func(c *site) { c.Kill(); c.start() }
	isFile := func(c *site) { _ = os.Rename(folder(c), folder(c)+".away"); testcaddy.WriteFile(t, folder(c), "") }
	isNowhere := func(c *site) { _ = os.Rename(folder(c), folder(c)+".away"); _ = os.Symlink("nowhere", folder(c)) }
	isBack := func(c *site) { _ = os.Remove(folder(c)); _ = os.Rename(folder(c)+".away", folder(c)) }
	damage := func(how func([]byte) []byte) func(*site) {
		return func(c *site) {
			for _, file := range records(c) {
				text, _ := os.ReadFile(file)
				testcaddy.WriteFile(t, file, string(how(text)))
			}
		}
	}
	for name, c := range map[string]struct {
		before, while, after func(*site) // what happens before the first request, while it runs, and after it
		first, again         string      // the answers of the first request and of a repetition: status and reason
	}{
		"a crash":                       {while: crash, first: "0 ", again: "409 unknown"},
		"a crash afterwards":            {after: crash, first: "201 ", again: "201 "},
		"a file in place of the folder": {before: isFile, after: isBack, first: "503 storage", again: "201 "},
		"no folder can be made":         {before: isNowhere, after: isBack, first: "503 storage", again: "201 "},
		"no folder can be made later":   {while: isNowhere, after: isBack, first: "201 ", again: "409 unknown"},
		"an empty record":               {after: damage(func([]byte) []byte { return nil }), first: "201 ", again: "409 unknown"},
		"a short record":                {after: damage(func(b []byte) []byte { return b[:len(b)-1] }), first: "201 ", again: "409 unknown"},
		"a changed record":              {after: damage(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), first: "201 ", again: "409 unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			here := newSite(t, "once {\nscope private-scope\nkey {http.request.uri.query.key}\n}\nreverse_proxy "+s.addr)
			do := func(what func(*site)) {
				if what != nil {
					what(here)
				}
			}
			send := func() <-chan testcaddy.Answer {
				return testcaddy.Send(t, http.MethodPost, here.url+"/?do=wait&status=201&Location=/private-order&key=private-key", "")
			}
			do(c.before)
			answer := send()
			if c.before == nil {
				wait.Until(t, "the first runs", func() bool { return s.count("private-key") == 1 })
			}
			do(c.while)
			close(s.gate)
			if a := <-answer; outcome(a) != c.first {
				t.Errorf("the first answer: %v", a)
			}
			for _, file := range records(here) {
				if text, _ := os.ReadFile(file); strings.Contains(file+string(text), "private-") {
					t.Errorf("%s: %q", file, text)
				}
			}
			do(c.after)
			if a := testcaddy.Await(t, send()); outcome(a) != c.again || s.count("private-key") != 1 {
				t.Errorf("then: %v; %d effects", a, s.count("private-key"))
			}
			if log := here.Log.String(); strings.Contains(log, "private-") || !strings.Contains(log, "the scope has no placeholder") {
				t.Errorf("the log tells a key or a scope, or does not warn of a scope that all clients share: %s", log)
			}
		})
	}
}

func outcome(a testcaddy.Answer) string {
	return fmt.Sprint(a.StatusCode, " ", a.Header.Get("Orderly-Once"))
}

// Bug: the log named one in a second of the requests whose outcome could not be stored, and error pages
// learnt nothing of a first request of which nobody knows whether the upstream has acted.
//
// Whoever looks for orders in doubt finds each of them, also if no client asks again.
func TestEachDoubtIsNamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newSite(t, "once {\nscope none\n}\nreverse_proxy "+s.addr+"\nhandle_errors {\nrespond {http.once.outcome}\n}")
	if a := post(t, c.url+"/?do=break", "a").Want(t, 502); a.Text != "unknown" || !strings.Contains(c.Ask("/metrics"), `{outcome="first"} 1`) {
		t.Errorf("an error page sees %v; metrics: %s", a, c.Ask("/metrics"))
	}
	var answers []<-chan testcaddy.Answer
	for _, key := range []string{"b", "c"} {
		answers = append(answers, testcaddy.Send(t, http.MethodPost, c.url+"/?do=wait", "", "Idempotency-Key", key))
		wait.Until(t, "it runs", func() bool { return s.count(key) == 1 })
	}
	folder := filepath.Join(c.settings.Home, "caddy", "orderly")
	_ = os.Rename(folder, folder+".away")
	testcaddy.WriteFile(t, folder, "")
	close(s.gate)
	for _, answer := range answers {
		testcaddy.Await(t, answer).Want(t, 200)
	}
	wait.Until(t, "the log names both", func() bool { return strings.Count(c.Log.String(), "could not be stored") == 2 })
}
