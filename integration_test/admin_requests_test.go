package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Bug: behind a proxy, all tickets had the proxy's address, and nothing said which
// requests they were. The list now shows the request as the client sent it.
func TestAdminShowsRequests(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := unstartedSite(t)
		text := strings.Replace(s.caddyfile("concurrency 2\n\t\tengine "+engine),
			"{\n", "{\n\tunique_ids\n\tlog\n\turi replace /shop /\n", 1)
		s.start(t, "{\n\tadmin {$ADMIN}\n\tservers {\n\t\ttrusted_proxies static 127.0.0.1/8\n\t}\n}\n"+text)
		var answers []<-chan testcaddy.Answer
		for i, method := range []string{"GET", "POST", "PUT"} {
			answers = append(answers, testcaddy.Send(t, method, s.url+fmt.Sprintf("shop/%d?password=secret", i), "",
				"X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i)))
			s.awaitTickets(t, i+1)
		}
		q := s.awaitTickets(t, 3)
		if q.Limit != 2 {
			t.Errorf("limit %d; expected the concurrency of 2", q.Limit)
		}
		var txids []string
		for i, method := range []string{"GET", "POST", "PUT"} {
			ticket := q.Tickets[i]
			if ticket.Request == nil {
				t.Fatalf("ticket %d has no request: %+v", i, ticket)
			}
			r := *ticket.Request
			txids = append(txids, r.TXID)
			r.TXID = ""
			want := serializer.Request{Method: method, Host: s.host, Path: fmt.Sprintf("/shop/%d", i), ClientIP: fmt.Sprintf("203.0.113.%d", i)}
			if r != want {
				t.Errorf("ticket %d is for %+v; expected %+v", i, r, want)
			}
			if inside := i < 2; ticket.Arrived.IsZero() || ticket.Entered.IsZero() == inside {
				t.Errorf("ticket %d arrived %v, entered %v", i, ticket.Arrived, ticket.Entered)
			}
		}
		if list := s.Ask("/serialize/queues"); strings.Contains(list, "secret") {
			t.Errorf("the list shows a query string: %s", list)
		}
		for range 3 {
			s.Next().Leave()
		}
		for _, a := range answers {
			testcaddy.Await(t, a)
		}
		// The txid was made for the list, and then is the request's.
		logged := fmt.Sprint(s.awaitLog(t, "handled request", 3))
		for i, txid := range txids {
			if txid == "" || !strings.Contains(logged, "txid:"+txid) {
				t.Errorf("ticket %d has txid %q; the access log has %s", i, txid, logged)
			}
		}
	})
}

// The requests of another process are not shown, and a request without unique_ids has no
// txid.
func TestAdminShowsOwnRequestsOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	other := s.join(t, "")
	one, inside, two, q := s.holderAndWaiter(t, other)
	if r := q.Tickets[0].Request; r == nil || r.Path != "/one" || r.TXID != "" || r.ClientIP != "127.0.0.1" {
		t.Errorf("this process's ticket is for %+v", r)
	}
	if r := q.Tickets[1].Request; r != nil || !q.Tickets[1].Entered.IsZero() {
		t.Errorf("the other process's ticket is for %+v", r)
	}
	inside.Leave()
	testcaddy.Await(t, one)
	s.NextNamed("two").Leave()
	testcaddy.Await(t, two)
}
