//go:build unix

package integration_test

import (
	"io"
	"slices"
	"testing"
	"time"
)

// The oracle of [TestEdges] must detect errors, and accept what is right. Times are
// milliseconds after the start of the case.
func TestEdgesOracle(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(n int) time.Time { return start.Add(ms(n)) }
	visit := func(request string, from, to int, trail ...string) *edgeVisit {
		return &edgeVisit{request: request, trail: trail, entered: at(from), left: at(to)}
	}
	cancelled := func(v *edgeVisit, when int) *edgeVisit {
		v.cancelled = at(when)
		return v
	}
	answer := func(client edgeClient, hungUp int) *edgeAnswer {
		a := &edgeAnswer{client: client, started: start, whole: start, ended: at(1000)}
		if hungUp > 0 {
			a.hungUp = at(hungUp)
		}
		return a
	}
	get, post := edgeClient{Method: "GET"}, edgeClient{Method: "POST", Body: 100}
	plain := edgeQueue{Timeout: 1000}
	overlap := []*edgeVisit{visit("a", 10, 100, "q0_=1"), visit("b", 50, 150, "q0_=2")}

	tests := []struct {
		name   string
		queue  edgeQueue
		visits []*edgeVisit
		a, b   *edgeAnswer
		ticket *edgeTicket // token 1
		evict  int         // token 1, then
		want   string
	}{
		{name: "in turn", queue: plain, visits: []*edgeVisit{visit("a", 10, 20, "q0_=1"), visit("b", 20, 30, "q0_=2")}},
		{name: "two inside", queue: plain, visits: overlap, want: "two inside"},
		{name: "two of two", queue: edgeQueue{Concurrency: 2}, visits: overlap},
		{name: "three of two", queue: edgeQueue{Concurrency: 2}, want: "too many inside",
			visits: append(slices.Clone(overlap), visit("c", 60, 70, "q0_=3"))},
		{name: "two readers", queue: edgeQueue{SharedMethods: "GET"}, visits: overlap},
		{name: "reader and writer", queue: edgeQueue{SharedMethods: "GET"}, visits: overlap, b: answer(post, 0), want: "two inside"},
		{name: "not behind the queue", queue: plain, visits: []*edgeVisit{overlap[0], visit("b", 50, 150)}},
		{name: "in the error route, in the turn", queue: plain, want: "two inside",
			visits: []*edgeVisit{visit("a", 10, 100, "q0_=1", "!502"), overlap[1]}},
		{name: "in the error route, after the turn", queue: edgeQueue{HoldTimeout: 5},
			visits: []*edgeVisit{visit("a", 10, 100, "q0_=1", "!504"), overlap[1]}},
		{name: "without a turn", queue: plain, visits: []*edgeVisit{visit("a", 10, 20, "!500", "q0_=")}, want: "no token"},
		{name: "token twice", queue: plain, visits: []*edgeVisit{visit("a", 10, 20, "q0_=1"), visit("b", 20, 30, "q0_=1")}, want: "token twice"},
		{name: "out of order", queue: plain, visits: []*edgeVisit{visit("a", 10, 20, "q0_=2"), visit("b", 20, 30, "q0_=1")}, want: "out of order"},

		{name: "before the body", queue: plain, visits: overlap[:1], a: &edgeAnswer{client: post, started: start, whole: at(50)}, want: "let in early"},
		{name: "before a body that streams", queue: edgeQueue{Buffer: "0"}, visits: overlap[:1], a: &edgeAnswer{client: post, started: start, whole: at(50)}},

		{name: "cancelled", queue: plain, visits: []*edgeVisit{cancelled(visit("a", 10, 100, "q0_=1"), 50)}, want: "cancelled"},
		{name: "cancelled with its client", queue: plain, visits: []*edgeVisit{cancelled(visit("a", 10, 100, "q0_=1"), 50)}, a: answer(get, 40), want: "cancelled"},
		{name: "cancelled by on_disconnect", queue: edgeQueue{Cancel: true}, visits: []*edgeVisit{cancelled(visit("a", 10, 100, "q0_=1"), 50), overlap[1]}, a: answer(get, 40)},
		{name: "cancelled by hold_timeout", queue: edgeQueue{HoldTimeout: 40}, visits: []*edgeVisit{cancelled(visit("a", 10, 100, "q0_=1"), 50), overlap[1]}},
		{name: "cancelled before hold_timeout", queue: edgeQueue{HoldTimeout: 60}, visits: []*edgeVisit{cancelled(visit("a", 10, 100, "q0_=1"), 50)}, want: "cancelled"},
		{name: "cancelled by eviction", queue: plain, visits: []*edgeVisit{cancelled(visit("a", 10, 100, "q0_=1"), 50), overlap[1]}, evict: 45},

		{name: "works on without the rest of the body", queue: edgeQueue{Buffer: "0"}, want: "two inside",
			visits: []*edgeVisit{cancelled(visit("a", 10, 100, "q0_=1"), 20), overlap[1]}, a: &edgeAnswer{client: post, started: start, hungUp: at(20)}},
		{name: "works on without the rest of the body, until hold_timeout", queue: edgeQueue{Buffer: "0", HoldTimeout: 40},
			visits: []*edgeVisit{cancelled(visit("a", 10, 100, "q0_=1"), 20), overlap[1]}, a: &edgeAnswer{client: post, started: start, hungUp: at(20)}},

		{name: "held for long", queue: plain, ticket: &edgeTicket{inside: at(10), stillInside: at(9000)}},
		{name: "held too long", queue: edgeQueue{HoldTimeout: 500}, ticket: &edgeTicket{inside: at(10), stillInside: at(9000)}, want: "held too long"},
		{name: "held after eviction", queue: plain, ticket: &edgeTicket{inside: at(10), stillInside: at(9000)}, evict: 45, want: "held too long"},
		{name: "left in the queue", queue: plain, ticket: &edgeTicket{port: 1, waiting: at(9000)}, a: &edgeAnswer{port: 1, hungUp: at(40)}, want: "left in the queue"},
		{name: "left the queue", queue: plain, ticket: &edgeTicket{port: 1, waiting: at(500)}, a: &edgeAnswer{port: 1, hungUp: at(40)}},

		{name: "no answer", queue: plain, a: &edgeAnswer{client: get, err: io.EOF}, want: "no answer"},
		{name: "no answer to who hung up", queue: plain, a: &edgeAnswer{client: edgeClient{HangUp: hangUpTime}, err: io.EOF}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := &edgeHistory{c: &edgeCase{Queues: []edgeQueue{test.queue}}, visits: test.visits,
				answers: map[string]*edgeAnswer{"a": answer(get, 0), "b": answer(get, 0), "c": answer(get, 0)}}
			for name, a := range map[string]*edgeAnswer{"a": test.a, "b": test.b} {
				if a != nil {
					h.answers[name] = a
				}
			}
			for name, a := range h.answers {
				a.request = name
			}
			id := edgeTicketID{queueName(0), "1"}
			if test.ticket != nil {
				h.tickets = map[edgeTicketID]*edgeTicket{id: test.ticket}
			}
			if test.evict > 0 {
				h.evictions = []edgeEviction{{id, at(test.evict)}}
			}
			found := h.judge()
			if test.want == "" && len(found) > 0 {
				t.Errorf("found %v, want nothing", found)
			}
			if test.want != "" && (len(found) == 0 || found[0].kind != test.want) {
				t.Errorf("found %v, want %s", found, test.want)
			}
		})
	}
}
