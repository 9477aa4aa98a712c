package integration_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/serializer"
)

func wantTickets(q serializer.QueueState, n int) error {
	if len(q.Tickets) != n {
		return fmt.Errorf("%d tickets in the queue; expected %d", len(q.Tickets), n)
	}
	return nil
}

// adminURL is the address of a queue, and a ticket in it, in the admin API.
func (s *site) adminURL(q serializer.QueueState, token ...string) string {
	u := "http://" + s.Admin + "/serialize/queues/" + url.PathEscape(q.Path+"/"+q.Prefix)
	if len(token) > 0 {
		u += "/" + token[0]
	}
	return u
}

func TestAdminShowsQueues(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := newSite(t, "engine "+engine)
		idle := fmt.Sprintf(`[{"path":%q,"prefix":"a_","limit":1,"inside":0,"waiting":0,"tickets":[]}]`, s.dir)
		if text := s.Ask("/serialize/queues"); strings.TrimSpace(text) != idle {
			t.Fatalf("with nobody there the queues are %s; expected %s", text, idle)
		}
		one, inside, two, q := s.holderAndWaiter(t, s)

		if q.Path != s.dir || q.Inside != 1 || q.Waiting != 1 {
			t.Errorf("queue is %+v; expected one inside and one waiting in %s", q, s.dir)
		}
		for i, state := range []string{serializer.StateInside, serializer.StateWaiting} {
			ticket := q.Tickets[i]
			if ticket.State != state || ticket.Token == "" || ticket.Since.IsZero() ||
				!strings.HasPrefix(ticket.Client, "127.0.0.1:") || !strings.Contains(ticket.Owner, fmt.Sprint("pid ", s.PID)) {
				t.Errorf("ticket %d is %+v; expected it to be %s", i, ticket, state)
			}
		}
		var same serializer.QueueState
		fromJSON(t, testcaddy.Get(t, s.adminURL(q)).Text, &same)
		if same.Prefix != q.Prefix || len(same.Tickets) != 2 {
			t.Errorf("the queue alone is %+v; expected %+v", same, q)
		}
		inside.Leave()
		testcaddy.Await(t, one)
		s.NextNamed("two").Leave()
		testcaddy.Await(t, two)
	})
}

func TestAdminRefusesNonsense(t *testing.T) {
	s := newSite(t, "")
	answer := s.send(t, "GET", "one")
	inside := s.NextNamed("one")
	q := s.awaitTickets(t, 1)
	this := s.adminURL(q)
	all := "http://" + s.Admin + "/serialize/queues"
	for _, c := range []struct {
		method, url string
		status      int
		allow       string
	}{
		{"GET", all + "/%2Fnowhere%2Fa_", 404, ""},
		{"GET", all + "/%2Fnowhere", 404, ""},
		{"GET", all + "/", 404, ""},
		{"GET", all + "/a/b/c", 404, ""},
		{"POST", all, 405, "GET, HEAD"},
		{"PUT", this, 405, "GET, HEAD"},
		{"DELETE", this, 405, "GET, HEAD"},
		{"GET", this + "/1", 405, "DELETE"},
		{"DELETE", this + "/1", 404, ""},
		{"DELETE", this + "/x", 400, ""},
		{"DELETE", this + "/", 404, ""},
		{"DELETE", this + "/" + q.Tickets[0].Token + "?careful", 409, ""},
		{"DELETE", this + "/-1", 400, ""},
		{"DELETE", this + "/99999999999999999999", 400, ""},
		{"DELETE", all + "/%2Fnowhere%2Fa_/1", 404, ""},
	} {
		a := testcaddy.Await(t, testcaddy.Send(t, c.method, c.url, ""))
		if a.StatusCode != c.status || a.Header.Get("Allow") != c.allow || a.Text == "" {
			t.Errorf("%s %s: status %d, Allow %q, %s; expected %d and %q",
				c.method, c.url, a.StatusCode, a.Header.Get("Allow"), a.Text, c.status, c.allow)
		}
	}
	inside.Leave()
	testcaddy.Await(t, answer)
}

// Names with slashes, percent signs and letters beyond ASCII work.
func TestAdminFindsQueuesWithOddNames(t *testing.T) {
	s := unstartedSite(t)
	s.start(t, strings.Replace(s.caddyfile(""), "prefix a_", `prefix "u {query.u}_"`, 1))
	for _, user := range []string{"..%2F..%2Fetc", "%25", "%C3%A4", "a%20b", "%3Fx=1%23y"} {
		answer := s.send(t, "GET", "one?u="+user)
		inside := s.NextNamed("one")
		queues := s.queues(t)
		if len(queues) != 1 {
			t.Fatalf("queues are %+v; expected one", queues)
		}
		var same serializer.QueueState
		fromJSON(t, testcaddy.Get(t, s.adminURL(queues[0])).Text, &same)
		if same.Prefix != queues[0].Prefix || len(same.Tickets) != 1 {
			t.Errorf("for user %s: queue is %+v; expected %+v", user, same, queues[0])
		}
		inside.Leave()
		testcaddy.Await(t, answer)
	}
}

func TestAdminEvictsWaiting(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := newSite(t, `error_code 503
			error_response text/plain "reason {http.serialize.reason}"
			engine `+engine)
		one, inside, two, q := s.holderAndWaiter(t, s)

		evicted := testcaddy.Await(t, testcaddy.Send(t, "DELETE", s.adminURL(q, q.Tickets[1].Token), ""))
		var ticket serializer.TicketState
		fromJSON(t, evicted.Text, &ticket)
		if evicted.StatusCode != http.StatusOK || ticket.Token != q.Tickets[1].Token || ticket.State != serializer.StateWaiting {
			t.Errorf("evicting: %d %s", evicted.StatusCode, evicted.Text)
		}
		testcaddy.Await(t, two).Want(t, http.StatusServiceUnavailable)
		s.awaitTickets(t, 1)
		inside.Leave()
		testcaddy.Await(t, one)
		s.Nobody()
	})
}
