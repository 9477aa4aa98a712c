//go:build unix

package orderly_test

import (
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A process that is stopped keeps its tickets; it cannot obey.
func TestCommandEvictFromStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	one := s.send(t, "GET", "one")
	inside := s.NextNamed("one")
	q := s.awaitTickets(t, 1)
	s.Stop()
	text, code := s.evict(t, q.Tickets[0].Token, "--force")
	if code != 4 || !strings.Contains(text, "does not react") {
		t.Errorf("exit code %d: %s; expected 4", code, text)
	}
	s.Continue()
	inside.Leave()
	if a := testcaddy.Await(t, one); a.StatusCode != 200 {
		t.Errorf("the request got %d; expected that nothing happened to it", a.StatusCode)
	}
	s.noFilesBut(t, ".orderly-guard", ".orderly-owner-")
}
