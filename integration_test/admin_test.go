//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// queues are all queues of a process, from its admin API.
func (c *caddy) queues() (queues []serializer.QueueState) {
	c.t.Helper()
	decodeInto(c.t, c.Ask("/serialize/queues"), &queues)
	return queues
}

// queue is a queue of a process, or the zero value.
func (c *caddy) queue(prefix string) serializer.QueueState {
	c.t.Helper()
	for _, q := range c.queues() {
		if q.Prefix == prefix {
			return q
		}
	}
	return serializer.QueueState{}
}

// awaitQueue waits until so many are inside a queue, and so many wait. It returns the queue.
func (c *caddy) awaitQueue(prefix string, inside, waiting int) (q serializer.QueueState) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("inside %s are %d, and %d wait", prefix, inside, waiting), func() bool {
		q = c.queue(prefix)
		return q.Inside == inside && q.Waiting == waiting
	})
	return q
}

// path is a queue's in the admin API.
func (c *caddy) path(prefix string) string {
	return "/serialize/queues/" + url.PathEscape(c.dir+"/"+prefix)
}

// The list shows who has a ticket. Bug: behind a proxy, all tickets had the proxy's address,
// and nothing said which requests they were. The list now shows the request as the client
// sent it. Bug: the commands read the shell's temporary directory, not the server's, and knew
// nothing of queues without a directory. Now they ask the server.
func TestAdminShowsQueues(t *testing.T) {
	t.Parallel()
	c := start(t, setup{servers: "trusted_proxies static 127.0.0.1/8",
		site: "unique_ids\nlog\nuri replace /shop /\n" + behindQueue("prefix a_\nconcurrency 2")})
	idle := fmt.Sprintf(`[{"path":%q,"prefix":"a_","limit":2,"inside":0,"waiting":0,"tickets":[]}]`, c.dir)
	if text := c.Ask("/serialize/queues"); strings.TrimSpace(text) != idle {
		t.Fatalf("with nobody there the queues are %s; expected %s", text, idle)
	}
	methods := []string{"GET", "POST", "PUT"}
	for i, method := range methods {
		testcaddy.Send(t, method, fmt.Sprintf("%s/shop/%d?name=%d&password=secret&gate", c.url, i, i), "", "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i))
		c.awaitQueue("a_", min(i+1, 2), max(i-1, 0))
	}
	list, q := c.Ask("/serialize/queues"), c.queue("a_")
	if q.Path != c.dir || q.Limit != 2 || strings.Contains(list, "secret") {
		t.Errorf("the list is %s; expected a limit of 2 and no query string", list)
	}
	var txids []string
	for i, method := range methods {
		ticket, inside := q.Tickets[i], i < 2
		if ticket.Request == nil || ticket.Token == "" || ticket.Since.IsZero() || ticket.Arrived.IsZero() || ticket.Entered.IsZero() == inside ||
			(ticket.State == serializer.StateInside) != inside || !strings.Contains(ticket.Owner, fmt.Sprint("pid ", c.PID)) {
			t.Fatalf("ticket %d is %+v", i, ticket)
		}
		r := *ticket.Request
		txids = append(txids, r.TXID)
		r.TXID = ""
		want := serializer.Request{Method: method, Host: c.host(), Path: fmt.Sprintf("/shop/%d", i), ClientIP: fmt.Sprintf("203.0.113.%d", i)}
		if r != want || !strings.HasPrefix(ticket.Client, "127.0.0.1:") {
			t.Errorf("ticket %d of %s is for %+v; expected %+v", i, ticket.Client, r, want)
		}
	}
	var same serializer.QueueState
	decodeInto(t, c.Ask(c.path("a_")), &same)
	if same.Prefix != q.Prefix || len(same.Tickets) != 3 {
		t.Errorf("the queue alone is %+v; expected %+v", same, q)
	}
	listed := c.listed()
	if len(listed) != 1 || len(listed[0].Tickets) != len(q.Tickets) {
		t.Fatalf("the command prints %+v", listed)
	}
	for i, ticket := range listed[0].Tickets {
		if ticket.Token != q.Tickets[i].Token || ticket.Request == nil || *ticket.Request != *q.Tickets[i].Request || ticket.Alive == nil || !*ticket.Alive {
			t.Errorf("the command prints the ticket %+v; the list has %+v", ticket, q.Tickets[i])
		}
	}
	if table := c.wantCommand(0, "inside 2 of 2, waiting 1", "queues"); strings.Contains(table, "secret") {
		t.Errorf("the table has a query string:\n%s", table)
	}
	for i := range methods {
		c.Open(fmt.Sprint(i))
	}
	// The txid was made for the list, and then is the request's.
	logged := fmt.Sprint(c.awaitEntries("handled request", 3))
	for i, txid := range txids {
		if txid == "" || !strings.Contains(logged, "txid:"+txid) {
			t.Errorf("ticket %d has txid %q; the access log has %s", i, txid, logged)
		}
	}
}

// Invalid requests are refused, with a hint on what to do.
func TestAdminRefusesNonsense(t *testing.T) {
	t.Parallel()
	c := startQueue(t, "prefix a_")
	c.holder(t)
	token := c.queue("a_").Tickets[0].Token
	for _, test := range []struct {
		method, path string // QUEUE is that of the queue
		status       int
		says         string // also by the header field Allow
	}{
		{"GET", "/%2Fnowhere%2Fa_", 404, ""},
		{"GET", "/", 404, ""},
		{"POST", "", 405, "GET, HEAD"},
		{"PUT", "QUEUE", 405, "GET, HEAD"},
		{"GET", "QUEUE/1", 405, "DELETE"},
		{"DELETE", "QUEUE/1", 404, ""},
		{"DELETE", "QUEUE/x", 400, ""},
		{"DELETE", "QUEUE/", 404, ""},
		{"DELETE", "QUEUE/" + token + "?careful", 400, "has only the parameters"},
		{"GET", "QUEUE/pause", 405, "not allowed"},
		{"DELETE", "QUEUE/resume", 400, "expected the number"},
		{"POST", "QUEUE/pause?for=soon", 400, "expected a duration"},
		{"POST", "QUEUE/pause?for=1ns", 400, "expected a duration"},
		{"POST", "QUEUE/pause?for=0.1ns", 400, "expected a duration"}, // bug: it was 0, and lasted until a resume
		{"POST", "QUEUE/pause?until=tomorrow", 400, "expected a moment to come"},
		{"POST", "QUEUE/pause?until=2026-01-01T00:00:00Z", 400, "expected a moment to come"},
		{"POST", "QUEUE/pause?for=10m&until=2999-01-01T00:00:00Z", 400, "no for beside it"},
		{"POST", "QUEUE/pause?fro=0", 400, "pause has only the parameters [for until], each once"},
		{"POST", "QUEUE/pause?for=10m&for=0", 400, "pause has only the parameters [for until], each once"}, // bug: the first one counted
		{"POST", "QUEUE/pause?for=10m;for=0", 400, "pause has only the parameters [for until], each once"},
		{"POST", "QUEUE/resume?for=1m", 400, "resume has only the parameters []"},
		{"POST", "QUEUEb_/pause", 404, "no such queue"},
		{"POST", "QUEUE%7Bquery.a%7D/pause", 404, "no such queue"},
		{"POST", "QUEUE/stop", 405, "not allowed"},
	} {
		path := strings.Replace("/serialize/queues"+test.path, "/serialize/queuesQUEUE", c.path("a_"), 1)
		a := c.API(test.method, path, "")
		if said := a.Header.Get("Allow") + " " + strings.ToLower(a.Text); a.StatusCode != test.status || !strings.Contains(said, test.says) || a.Text == "" {
			t.Errorf("%s %s: %v, says %q; expected %d with %q", test.method, path, a, said, test.status, test.says)
		}
	}
	if q := c.queue("a_"); q.Inside != 1 || q.PausedUntil != nil {
		t.Errorf("after all that, the queue is %+v", q)
	}
}

// Tickets are evicted by the API and by the command, which asks before one that is inside.
func TestEvict(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: behindQueue("prefix a_") + "\nhandle_errors {\nrespond {http.serialize.reason}\n}"})
	holder := c.holder(t)
	var waiters []<-chan testcaddy.Answer
	for i := range 3 {
		waiters = append(waiters, c.getting(fmt.Sprintf("/?name=%d", i)))
		c.awaitQueue("a_", 1, i+1)
	}
	var evicted serializer.TicketState
	tickets := c.queue("a_").Tickets
	decodeInto(t, c.API("DELETE", c.path("a_")+"/"+tickets[1].Token, "").Want(t, http.StatusOK).Text, &evicted)
	if evicted.Token != tickets[1].Token || evicted.State != serializer.StateWaiting {
		t.Errorf("evicted is %+v", evicted)
	}
	c.wantEvict(0, "its request is refused", tickets[2].Token)
	for _, waiter := range waiters[:2] {
		if a := (<-waiter).Want(t, http.StatusServiceUnavailable); a.Text != "evicted" {
			t.Errorf("the answer is %q", a.Text)
		}
	}
	c.wantEvict(3, "--force", tickets[0].Token) // nobody confirms
	c.wantEvict(2, "no ticket 17 in queue a_; caddy serialize queues lists", "17")
	c.wantEvict(2, "no ticket 17 in queue "+c.dir+"/a_", "17", "--path", c.dir)
	c.wantEvict(1, "number of a ticket", "x")
	c.wantOrder("holder")
	// Bug: the command did not ask a script.
	yes := testcaddy.Command(t, "serialize", "evict", "--prefix", "a_", tickets[0].Token, "--address", c.Admin)
	yes.Stdin = strings.NewReader("y\n")
	if out, errs, code := testcaddy.OutputOf(t, yes); code != 0 || !strings.Contains(errs, "Evict it?") || !strings.Contains(out, "its turn has ended") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	c.wantServed(waiters[2])
	(<-holder).Want(t, http.StatusGatewayTimeout)
	c.wantOrder("holder", "2")
	c.awaitQueue("a_", 0, 0)
	c.awaitTickets(0)
}
