//go:build unix

package integration_test

import (
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A stopped process keeps its tickets, and cannot obey.
func TestCommandEvictFromStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	one, inside := s.holder(t)
	q := s.awaitTickets(t, 1)
	s.Stop()
	text, code := s.evict(t, q.Tickets[0].Token, "--force")
	if code != 4 || !strings.Contains(text, "does not react") {
		t.Errorf("exit code %d: %s; expected 4", code, text)
	}
	// Its admin API takes the connection, and never answers.
	out, errs, code := output(t, []string{"TMPDIR=" + s.dir}, "serialize", "queues", "--address", s.Admin)
	if code != 0 || !strings.Contains(errs, "no Caddy answers") || !strings.Contains(out, q.Tickets[0].Token) {
		t.Errorf("asking a stopped server: exit code %d: %s%s", code, out, errs)
	}
	s.Continue()
	inside.Leave()
	testcaddy.Await(t, one).Want(t, 200)
	s.noFilesBut(t, ".orderly-guard", ".orderly-owner-")
}

// Another process with the same queue is asked to evict, but it is stopped.
func TestCommandEvictFromStoppedThroughServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	other := s.join(t, "")
	one, inside, two, q := s.holderAndWaiter(t, other)
	other.Stop()
	s.from = []string{"--address", s.Admin}
	text, code := s.evict(t, q.Tickets[1].Token)
	if code != 4 || !strings.Contains(text, "does not react") {
		t.Errorf("exit code %d: %s; expected 4", code, text)
	}
	other.Continue()
	testcaddy.Await(t, two).Want(t, 500)
	inside.Leave()
	testcaddy.Await(t, one)
}
