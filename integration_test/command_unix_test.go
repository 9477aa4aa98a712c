//go:build unix

package integration_test

import (
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
	// Its admin API takes the connection, and never answers.
	if text, code := s.evict(t, q.Tickets[0].Token, "--force"); code != 1 || !strings.Contains(text, "no Caddy answers") {
		t.Errorf("exit code %d: %s; expected 1", code, text)
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
	text, code := s.evict(t, q.Tickets[1].Token)
	if code != 4 || !strings.Contains(text, "does not answer") {
		t.Errorf("exit code %d: %s; expected 4", code, text)
	}
	other.Continue()
	testcaddy.Await(t, two).Want(t, 503)
	inside.Leave()
	testcaddy.Await(t, one)
}
