package integration_test

import (
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Bug: reverse_proxy took the end of a hold for an upstream failure, since the cause was
// not a cancellation. It retried for lb_try_duration while it held the turn.
func TestRevokedIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, onDisconnect := range []string{"finish", "cancel"} {
		t.Run(onDisconnect, func(t *testing.T) {
			t.Parallel()
			s := unstartedSite(t)
			s.start(t, strings.Replace(s.caddyfile("on_disconnect "+onDisconnect), s.Upstream.Addr, "127.0.0.1:1 {\n\t\tlb_try_duration 10m\n\t}", 1))
			one := s.send(t, "GET", "one")
			q := s.awaitTickets(t, 1)
			testcaddy.Await(t, testcaddy.Send(t, "DELETE", s.adminURL(q, q.Tickets[0].Token), ""))
			testcaddy.Await(t, one).Want(t, 504) // which is sooner than a minute
		})
	}
}

// Bug: it also counted the end of a hold as a failure of the upstream, and marked the
// upstream as down. All later requests got 503.
func TestRevokedIsNotTheUpstreamsFault(t *testing.T) {
	t.Parallel()
	s := unstartedSite(t)
	text := strings.Replace(s.caddyfile("hold_timeout 2s"),
		"reverse_proxy "+s.Upstream.Addr, "reverse_proxy "+s.Upstream.Addr+" {\n\t\tfail_duration 1m\n\t}", 1)
	s.start(t, text)
	one := s.send(t, "GET", "one")
	<-s.NextNamed("one").Gone
	testcaddy.Await(t, one).Want(t, 504)
	two := s.send(t, "GET", "two")
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two).Want(t, 200)
}
