//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A stopped process keeps its tickets, and cannot answer.
func TestCommandEvictFromStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	one, inside := s.holder(t)
	q := s.awaitTickets(t, 1)
	s.Stop()
	// Its admin API takes the connection, and answers once it continues.
	if text, code := s.evict(t, q.Tickets[0].Token, "--force"); code != 4 || !strings.Contains(text, "does not answer") {
		t.Errorf("exit code %d: %s; expected 4", code, text)
	}
	s.Continue()
	inside.Leave()
	testcaddy.Await(t, one)
	s.noFilesBut(t, ".orderly-guard", ".orderly-owner-")
}

// Another process with the same queue is asked to evict, but it is stopped. Bug: of a
// request inside, the command said that it was cancelled.
func TestCommandEvictFromStoppedThroughServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	other := s.join(t, "")
	one, inside, two, q := s.holderAndWaiter(t, other)
	other.Stop()
	text, code := s.evict(t, q.Tickets[1].Token)
	if code != 4 || !strings.Contains(text, "does not answer") {
		t.Errorf("exit code %d: %s; expected 4", code, text)
	}
	other.Continue()
	s.Stop()
	if text, code = other.evict(t, q.Tickets[0].Token, "--force"); code != 4 || !strings.Contains(text, fmt.Sprintf("pid %d", s.PID)) {
		t.Errorf("of one inside: exit code %d: %s; expected 4", code, text)
	}
	s.Continue()
	testcaddy.Await(t, two).Want(t, 503)
	inside.Leave()
	testcaddy.Await(t, one)

	// One that is not stopped evicts it.
	one, inside, two, q = s.holderAndWaiter(t, other)
	if text, code = s.evict(t, q.Tickets[1].Token); code != 0 {
		t.Errorf("exit code %d: %s", code, text)
	}
	testcaddy.Await(t, two).Want(t, 503)
	inside.Leave()
	testcaddy.Await(t, one)
}
