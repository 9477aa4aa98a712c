//go:build unix

package integration_test

import (
	"io"
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
	hungUp := func(client edgeClient, when int) *edgeAnswer {
		return &edgeAnswer{client: client, started: start, whole: start, hungUp: at(when)}
	}
	get, post := edgeClient{Method: "GET"}, edgeClient{Method: "POST", Body: 100}
	const line1, line2, line3 = "lax=1=q0_", "lax=2=q0_", "lax=3=q0_"
	a, b := visit("a", 10, 100, line1), visit("b", 50, 150, line2)
	refused := "!503={http.serialize.token}=q0_"
	readers, streams := edgeQueue{Readers: true}, edgeQueue{Buffer: "off"}
	inUpload := cancelled(visit("a", 10, 100, line1), 70)
	broken := &edgeAnswer{client: post, started: start, hungUp: at(40)}
	events := cancelled(&edgeVisit{request: "a", trail: []string{line1}, entered: at(10), left: at(70), step: edgeStep{Do: doEvents}}, 70)
	long := &edgeTicket{inside: at(10), stillInside: at(9000)}

	tests := []struct {
		name   string
		queue  edgeQueue
		visits []*edgeVisit
		answer *edgeAnswer // of a
		ticket *edgeTicket // number 1
		evict  int         // number 1, then
		want   string
	}{
		{name: "in turn", visits: []*edgeVisit{visit("a", 10, 20, line1), visit("b", 20, 30, line2)}},
		{name: "two inside", visits: []*edgeVisit{a, b}, want: "two inside"},
		{name: "two of two", queue: edgeQueue{Concurrency: 2}, visits: []*edgeVisit{a, b}},
		{name: "a strict one beside", queue: edgeQueue{Concurrency: 2}, visits: []*edgeVisit{a, visit("b", 50, 150, "strict=2=q0_")}, want: "two inside"},
		{name: "writer beside reader", queue: readers, visits: []*edgeVisit{visit("b", 10, 100, line1), visit("a", 50, 150, line2)}, answer: hungUp(post, 900), want: "two inside"},
		{name: "in the error route, with a turn", visits: []*edgeVisit{visit("a", 10, 100, line1, "!502=1=q0_", line2), visit("b", 50, 150, line3)}, want: "two inside"},
		{name: "in the error route, after the turn", visits: []*edgeVisit{visit("a", 10, 100, line1, "!502=1=q0_"), b}},
		{name: "in the error route, refused", visits: []*edgeVisit{visit("a", 10, 20, refused, line1)}, want: "let in after refusal"},
		{name: "reentrant, with a ticket", visits: []*edgeVisit{visit("a", 10, 20, line1, line2)}, want: "two tickets"},
		{name: "reentrant, stricter", queue: edgeQueue{Concurrency: 2}, visits: []*edgeVisit{visit("a", 10, 20, line1, "strict=1=q0_")}, want: "stricter line passed"},
		{name: "off, with a ticket", visits: []*edgeVisit{visit("a", 10, 100, "off", line1)}, want: "ticket in spite of off"},
		{name: "without a turn", visits: []*edgeVisit{visit("a", 10, 20, "lax={http.serialize.token}=q0_")}, want: "no token"},
		{name: "token twice", visits: []*edgeVisit{visit("a", 10, 20, line1), visit("b", 20, 30, line1)}, want: "token twice"},
		{name: "out of order", visits: []*edgeVisit{visit("a", 10, 20, line2), visit("b", 20, 30, line1)}, want: "out of order"},

		{name: "before the body", visits: []*edgeVisit{a}, answer: &edgeAnswer{client: post, started: start, whole: at(50)}, want: "let in early"},
		{name: "too large a body", queue: edgeQueue{Buffer: "0KiB 0KiB"}, visits: []*edgeVisit{a}, answer: &edgeAnswer{client: post, started: start, whole: at(5)}, want: "too large"},
		{name: "less of a body", visits: []*edgeVisit{a}, answer: &edgeAnswer{client: post, started: start, whole: at(5)}, want: "body changed"},
		{name: "hung up in mid-upload", queue: streams, visits: []*edgeVisit{inUpload, b}, answer: broken},
		{name: "next one before that", queue: streams, visits: []*edgeVisit{inUpload, visit("b", 30, 150, line2)}, answer: broken, want: "two inside"},

		{name: "cancelled", visits: []*edgeVisit{cancelled(visit("a", 10, 100, line1), 50)}, want: "cancelled"},
		{name: "cancelled with its client", visits: []*edgeVisit{cancelled(visit("a", 10, 100, line1), 50)}, answer: hungUp(get, 40), want: "cancelled"},
		{name: "cancelled by on_disconnect", queue: edgeQueue{Cancel: true}, visits: []*edgeVisit{cancelled(visit("a", 10, 100, line1), 50), b}, answer: hungUp(get, 40)},
		{name: "cancelled by hold_timeout", queue: edgeQueue{HoldTimeout: 40}, visits: []*edgeVisit{cancelled(visit("a", 10, 100, line1), 50), b}},
		{name: "cancelled by eviction", visits: []*edgeVisit{cancelled(visit("a", 10, 100, line1), 50), b}, evict: 45},
		{name: "a stream cancelled with its client", visits: []*edgeVisit{events, b}, answer: hungUp(get, 40)},
		{name: "a stream without its client", answer: hungUp(get, 40), want: "stream went on",
			visits: []*edgeVisit{{request: "a", trail: []string{line1}, entered: at(10), left: at(9000), step: edgeStep{Do: doEvents}}}},

		{name: "held too long", queue: edgeQueue{HoldTimeout: 500}, ticket: long, want: "held too long"},
		{name: "held after eviction", ticket: long, evict: 45, want: "held too long"},
		{name: "left in the queue", ticket: &edgeTicket{waiting: at(9000)}, answer: hungUp(get, 40), want: "left in the queue"},

		{name: "no answer", answer: &edgeAnswer{client: get, err: io.EOF}, want: "no answer"},
		{name: "revoked by nobody", answer: &edgeAnswer{client: get, status: 504}, want: "wrong answer"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := &edgeHistory{c: &edgeCase{Queues: []edgeQueue{test.queue}}, visits: test.visits, answers: make(map[string]*edgeAnswer)}
			for port, name := range []string{"a", "b", "c"} {
				h.answers[name] = &edgeAnswer{request: name, client: get, port: port, started: start, ended: at(1000)}
			}
			if test.answer != nil {
				h.answers["a"] = test.answer
			}
			id := edgeTicketID{queueName(0), "1"}
			if test.ticket != nil {
				h.tickets = map[edgeTicketID]*edgeTicket{id: test.ticket}
			}
			if test.evict > 0 {
				h.evicted, h.evictAt = id, at(test.evict)
			}
			h.judge()
			if found := append(h.found, &violation{}); found[0].kind != test.want {
				t.Errorf("found %v, want %q", h.found, test.want)
			}
		})
	}
}
