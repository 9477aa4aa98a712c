package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// listed is what the command queues prints as JSON.
func listed(t *testing.T, args ...string) (queues []serializer.QueueState) {
	t.Helper()
	out, errs, code := testcaddy.Output(t, append([]string{"serialize", "queues", "--json"}, args...)...)
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

	t.Run("json", func(t *testing.T) {
		queues := listed(t, "--path", s.dir)
		if len(queues) != 1 || queues[0].Inside != 1 || queues[0].Waiting != 1 || queues[0].Path != s.dir || queues[0].Prefix != "a_" {
			t.Fatalf("queues are %+v; expected a_ with one inside and one waiting", queues)
		}
		admin := s.queues(t)[0]
		for i, ticket := range queues[0].Tickets {
			if ticket.Alive == nil || !*ticket.Alive {
				t.Errorf("ticket %d is not alive", i)
			}
			if ticket.Token != admin.Tickets[i].Token || ticket.State != admin.Tickets[i].State ||
				ticket.Client != admin.Tickets[i].Client || ticket.Owner != admin.Tickets[i].Owner {
				t.Errorf("ticket %d is %+v; the admin API says %+v", i, ticket, admin.Tickets[i])
			}
		}
	})
	t.Run("prefix", func(t *testing.T) {
		for prefix, n := range map[string]int{"a_": 1, "a": 0, "a_b": 0, "a*": 1, "b*": 0} {
			if queues := listed(t, "--path", s.dir, "--prefix", prefix); len(queues) != n {
				t.Errorf("with --prefix %s there are %d queues; expected %d", prefix, len(queues), n)
			}
		}
	})
	t.Run("table", func(t *testing.T) {
		out, _, code := testcaddy.Output(t, "serialize", "queues", "--path", s.dir)
		lines := strings.Split(out, "\n")
		if code != 0 || len(lines) < 4 || !strings.Contains(lines[0], "inside 1 of 1, waiting 1") ||
			!strings.HasPrefix(lines[2], "1      inside ") || !strings.HasPrefix(lines[3], "2      waiting") {
			t.Errorf("exit code %d, table:\n%s", code, out)
		}
		t.Logf("\n%s", out)
	})
	t.Run("watch", func(t *testing.T) { testWatch(t, s) })
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)
}

// testWatch reads three lists of one command, each of them a line.
func testWatch(t *testing.T, s *site) {
	cmd := testcaddy.Command(t, "serialize", "queues", "--path", s.dir, "--json", "--watch")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 3 {
		var queues []serializer.QueueState
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &queues) != nil || len(queues) != 1 {
			t.Fatalf("--watch --json printed %q", lines.Text())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v; expected success", err)
	}
}

// The command only reads: a directory without a server stays as it is.
func TestCommandQueuesLeavesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if queues := listed(t, "--path", dir); len(queues) != 0 {
		t.Errorf("queues of an empty directory are %+v", queues)
	}
	if out, _, code := testcaddy.Output(t, "serialize", "queues", "--path", dir); code != 0 || !strings.Contains(out, "nobody is in a queue") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("there are now %d files in the directory; expected none", len(files))
	}
}

func TestCommandErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"queues", "--path", missing}, 1, missing},
		{[]string{"queues", "more"}, 1, "more"},
		{[]string{"nonsense"}, 1, "nonsense"},
		{[]string{"evict", "--path", dir, "--prefix", "a_", "x"}, 1, "number of a ticket"},
		{[]string{"evict", "--path", dir, "--prefix", "a_", "17"}, 2, dir},
		{[]string{"evict", "--path", missing, "--prefix", "a_", "17"}, 1, missing},
		{[]string{"evict", "--path", dir, "17"}, 1, "prefix"},
		{[]string{"evict", "--path", dir, "--prefix", "a_"}, 1, "arg"},
	} {
		_, errs, code := testcaddy.Output(t, append([]string{"serialize"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("caddy serialize %s: exit code %d, %s; expected %d and %q", strings.Join(c.args, " "), code, errs, c.code, c.says)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the missing directory was made")
	}
}

// evict calls the command for a ticket of the site.
func (s *site) evict(t *testing.T, token string, more ...string) (text string, code int) {
	t.Helper()
	from := s.from
	if from == nil {
		from = []string{"--path", s.dir}
	}
	args := slices.Concat([]string{"serialize", "evict", "--prefix", "a_", token}, from, more)
	out, errs, code := testcaddy.Output(t, args...)
	return out + errs, code
}

func TestCommandEvict(t *testing.T) {
	for from, args := range map[string]func(*site) []string{
		"directory": func(s *site) []string { return []string{"--path", s.dir} },
		"server":    func(s *site) []string { return []string{"--address", s.Admin} },
	} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "")
			s.from = args(s)
			testEvict(t, s)
		})
	}
}

func testEvict(t *testing.T, s *site) {
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
	testcaddy.Await(t, two).Want(t, 500)
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

// A killed process leaves its files, but nobody holds their lock.
func TestCommandShowsAndEvictsDead(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.send(t, "GET", "one")
	s.NextNamed("one")
	q := s.awaitTickets(t, 1)
	s.Kill()
	queues := listed(t, "--path", s.dir)
	if len(queues) != 1 || queues[0].Tickets[0].Alive == nil || *queues[0].Tickets[0].Alive {
		t.Fatalf("queues are %+v; expected a dead ticket", queues)
	}
	if text, code := s.evict(t, q.Tickets[0].Token, "-f"); code != 0 || !strings.Contains(text, "removed") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if queues := listed(t, "--path", s.dir); len(queues) != 0 {
		t.Errorf("queues are %+v; expected none", queues)
	}
}

// The rules for readers and for limits are those of the tickets' owners.
func TestCommandDecidesWhoIsInside(t *testing.T) {
	t.Parallel()
	s := newSite(t, "shared_methods GET\nconcurrency 2")
	var answers []<-chan testcaddy.Answer
	for i, method := range []string{"GET", "GET", "GET", "POST", "GET"} {
		answers = append(answers, s.send(t, method, fmt.Sprint(i)))
		s.awaitTickets(t, i+1)
	}
	first, second := s.Next(), s.Next()
	q := listed(t, "--path", s.dir)[0]
	if q.Inside != 2 || q.Waiting != 3 {
		t.Errorf("%d inside, %d waiting; expected 2 and 3", q.Inside, q.Waiting)
	}
	first.Leave()
	second.Leave()
	for range 3 {
		s.Next().Leave()
	}
	for _, a := range answers {
		testcaddy.Await(t, a)
	}
}
