package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// listed is what the command queues prints as JSON of a site's server.
func listed(t *testing.T, s *site, args ...string) (queues []serializer.QueueState) {
	t.Helper()
	out, errs, code := testcaddy.Output(t, append([]string{"serialize", "queues", "--json", "--address", s.Admin}, args...)...)
	if code != 0 {
		t.Fatalf("caddy serialize queues: exit code %d: %s", code, errs)
	}
	fromJSON(t, out, &queues)
	if queues == nil {
		t.Fatalf("caddy serialize queues printed %q; expected an array", out)
	}
	return queues
}

func TestCommandQueues(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	one, inside, two, _ := s.holderAndWaiter(t, s)
	for prefix, n := range map[string]int{"a_": 1, "a": 0, "a_b": 0, "a*": 1, "b*": 0} {
		if queues := listed(t, s, "--prefix", prefix); len(queues) != n {
			t.Errorf("with --prefix %s there are %d queues; expected %d", prefix, len(queues), n)
		}
	}
	out, _, code := testcaddy.Output(t, "serialize", "queues", "--address", s.Admin)
	lines := strings.Split(out, "\n")
	if code != 0 || len(lines) < 4 || !strings.Contains(lines[0], "inside 1 of 1, waiting 1") ||
		!strings.HasPrefix(lines[2], "-      inside ") || !strings.HasPrefix(lines[3], "1      waiting") {
		t.Errorf("exit code %d, table:\n%s", code, out)
	}
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)
}

// With one prefix in two directories, --path says which is meant. A prefix that ends in *
// means all that begin so.
func TestCommandChoosesQueues(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	dirs := []string{s.dir, t.TempDir()}
	config := ""
	for i, dir := range dirs {
		for _, prefix := range []string{"shop_", "shop_x_", "other_"} {
			config += fmt.Sprintf("\thandle /%d/%s {\n\t\tserialize {\n\t\t\tpath %s\n\t\t\tprefix %s\n\t\t}\n\t\trespond ok\n\t}\n", i, prefix, dir, prefix)
		}
	}
	s.start(t, "http://"+s.host+" {\n"+config+"}\n")
	for _, c := range []struct {
		args   []string
		queues int
	}{
		{nil, 6},
		{[]string{"--prefix", "shop_"}, 2},
		{[]string{"--prefix", "shop_*"}, 4},
		{[]string{"--path", dirs[1]}, 3},
		{[]string{"--path", dirs[1] + "/", "--prefix", "shop_"}, 1},
		{[]string{"--path", dirs[1], "--prefix", "*"}, 3},
		{[]string{"--path", t.TempDir()}, 0},
	} {
		if queues := listed(t, s, c.args...); len(queues) != c.queues {
			t.Errorf("%v lists %d queues; expected %d", c.args, len(queues), c.queues)
		}
	}
	for _, c := range []struct {
		args   []string
		code   int
		paused int // queues of the configuration
	}{
		{[]string{"pause", "--prefix", "shop_", "--path", dirs[0]}, 0, 1},
		{[]string{"resume", "--prefix", "shop_", "--path", dirs[0]}, 0, 0},
		{[]string{"pause", "--prefix", "shop_*", "--path", dirs[0], "--wait"}, 0, 2},
		{[]string{"pause", "--prefix", "shop_*"}, 0, 4},
		{[]string{"resume", "--prefix", "shop_*", "--path", dirs[1]}, 0, 2},
		{[]string{"resume", "--prefix", "shop_x_"}, 0, 2}, // the pause of several goes on
		{[]string{"resume", "--prefix", "*"}, 0, 0},
		{[]string{"pause", "--prefix", "none_*"}, 2, 0},
		{[]string{"pause", "--prefix", "shop_", "--path", t.TempDir()}, 2, 0},
	} {
		out, errs, code := testcaddy.Output(t, append(append([]string{"serialize"}, c.args...), "--address", s.Admin)...)
		paused := 0
		for _, q := range listed(t, s) {
			if q.PausedUntil != nil && !strings.HasSuffix(q.Prefix, "*") {
				paused++
			}
		}
		if code != c.code || paused != c.paused {
			t.Errorf("%v: exit code %d, %d queues are paused; expected %d and %d: %s%s", c.args, code, paused, c.code, c.paused, out, errs)
		}
	}
}

// Bug: with the real path of a directory that is configured by a symbolic link, "pause
// --wait" paused the queue, but could not find it: it said that the pause had ended. "queues"
// listed nothing.
func TestCommandFollowsLinks(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	dir, link := s.dir, filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	s.dir = link
	s.start(t, s.caddyfile(""))
	for _, path := range []string{dir, link} {
		if queues := listed(t, s, "--path", path); len(queues) != 1 {
			t.Errorf("in %s there are %d queues; expected 1", path, len(queues))
		}
		out, errs, code := testcaddy.Output(t, "serialize", "pause", "--prefix", "a_", "--path", path, "--wait", "--address", s.Admin)
		if code != 0 || !strings.HasSuffix(out, "nobody is inside\n") {
			t.Errorf("pause --wait in %s: exit code %d: %s%s", path, code, out, errs)
		}
	}
}

// evict calls the command for a ticket of the site.
func (s *site) evict(t *testing.T, token string, more ...string) (text string, code int) {
	t.Helper()
	args := append([]string{"serialize", "evict", "--prefix", "a_", "--address", s.Admin, token}, more...)
	out, errs, code := testcaddy.Output(t, args...)
	return out + errs, code
}

func TestCommandEvict(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	one, inside := s.holder(t)
	two := s.send(t, "GET", "two")
	three := func() <-chan testcaddy.Answer {
		s.awaitTickets(t, 2)
		return s.send(t, "GET", "three")
	}()
	q := s.awaitTickets(t, 3)

	if text, code := s.evict(t, q.Tickets[1].Token); code != 0 || !strings.Contains(text, "its request is refused") {
		t.Errorf("evicting a waiter: exit code %d: %s", code, text)
	}
	testcaddy.Await(t, two).Want(t, 503)
	if text, code := s.evict(t, q.Tickets[0].Token); code != 3 || !strings.Contains(text, "--force") {
		t.Errorf("evicting a holder where nobody can confirm: exit code %d: %s", code, text)
	}
	s.Nobody()
	if text, code := s.evict(t, q.Tickets[0].Token, "--force"); code != 0 || !strings.Contains(text, "has returned") {
		t.Errorf("evicting a holder: exit code %d: %s", code, text)
	}
	<-inside.Gone
	testcaddy.Await(t, one)
	s.NextNamed("three").Leave()
	testcaddy.Await(t, three)
	s.noFilesBut(t, ".orderly-guard", ".orderly-owner-")
}

// noFilesBut makes sure that all files in the directory begin like these.
func (s *site) noFilesBut(t *testing.T, starts ...string) {
	t.Helper()
	wait.Eventually(t, "there are no other files", func() error {
		files, err := os.ReadDir(s.dir)
		if err != nil {
			return err
		}
		for _, f := range files {
			if !startsWithOne(f.Name(), starts) {
				return fmt.Errorf("there is a file %s", f.Name())
			}
		}
		return nil
	})
}

func startsWithOne(name string, starts []string) bool {
	for _, start := range starts {
		if strings.HasPrefix(name, start) {
			return true
		}
	}
	return false
}
