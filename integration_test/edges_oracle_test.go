//go:build unix

package integration_test

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A turn that is revoked ends within a second, and a client that hangs up leaves
// within one. A busy machine gets a second and a half more.
const (
	promptly = time.Second
	leeway   = 1500 * time.Millisecond
)

// unnoticed is how long it may take an upstream on a busy machine to notice that
// it was cancelled.
const unnoticed = 500 * time.Millisecond

// edgeHistory is what happened in a case.
type edgeHistory struct {
	c         *edgeCase
	answers   map[string]*edgeAnswer // by request
	visits    []*edgeVisit
	tickets   map[edgeTicketID]*edgeTicket
	evictions []edgeEviction
}

type edgeTicketID struct {
	queue, token string
}

// edgeTicket is what the admin API said of a ticket.
type edgeTicket struct {
	port        int       // of its client
	waiting     time.Time // when it was last seen to wait; zero if never
	inside      time.Time // when it was first seen inside; zero if never
	stillInside time.Time // when it was last seen there
}

type edgeEviction struct {
	edgeTicketID
	at time.Time
}

// violation is a broken promise.
type violation struct {
	kind string
	text string
}

func (v *violation) String() string { return v.kind + ": " + v.text }

// hold is the time that a request spends in the upstream, behind a queue.
type hold struct {
	visit  *edgeVisit
	answer *edgeAnswer
	queue  int
	token  uint64
	from   time.Time
	to     time.Time
	reader bool
}

func (s hold) String() string {
	return fmt.Sprintf("%s %v (token %d, visit of %v%s)", s.answer.name(), s.visit.trail, s.token,
		s.visit.left.Sub(s.visit.entered).Round(time.Millisecond), s.endedBy())
}

func (s hold) endedBy() string {
	if s.visit.cancelled.IsZero() {
		return ""
	}
	return fmt.Sprintf(", cancelled after %v", s.visit.cancelled.Sub(s.visit.entered).Round(time.Millisecond))
}

// judge returns the broken promises of a case, the gravest first.
func (h *edgeHistory) judge() (found []*violation) {
	holds := make([][]hold, len(h.c.Queues))
	for _, v := range h.visits {
		for _, s := range h.holds(v) {
			holds[s.queue] = append(holds[s.queue], s)
		}
	}
	for i, holds := range holds {
		slices.SortFunc(holds, func(a, b hold) int { return a.from.Compare(b.from) })
		found = append(found, h.capacity(i, holds)...)
		found = append(found, h.order(i, holds)...)
	}
	for _, v := range h.visits {
		found = append(found, h.early(v)...)
		found = append(found, h.cancellation(v)...)
	}
	for id, ticket := range h.tickets {
		found = append(found, h.held(id, ticket)...)
		found = append(found, h.lingers(id, ticket)...)
	}
	for _, a := range h.answers {
		found = append(found, h.answered(a)...)
	}
	return found
}

// passed is a mark that a request got behind a serialize.
type passed struct {
	queue   int
	token   string
	inError bool // in the error routes
}

// passages reads the marks of a visit. Each queue is listed once, as it was passed first.
// A note says whether it was passed in the error routes, too. status is the one with
// which the request came to the error routes.
func passages(v *edgeVisit) (found []passed, status string) {
	for _, mark := range v.trail {
		if rest, ok := strings.CutPrefix(mark, "!"); ok {
			status = rest
			continue
		}
		name, token, _ := strings.Cut(mark, "=")
		var queue int
		_, _ = fmt.Sscanf(name, "q%d_", &queue)
		i := slices.IndexFunc(found, func(p passed) bool { return p.queue == queue })
		if i < 0 {
			i = len(found)
			found = append(found, passed{queue: queue, token: token})
		}
		found[i].inError = found[i].inError || status != ""
	}
	return found, status
}

// protections are the queues whose turns a visit is part of.
func (h *edgeHistory) protections(v *edgeVisit) (found []passed) {
	all, status := passages(v)
	for _, p := range all {
		// In the error routes, a turn that was revoked before is over.
		if revoked := status == "504" || status == "503"; revoked && !p.inError && h.revocable(p) {
			continue
		}
		found = append(found, p)
	}
	return found
}

// revocable reports whether the turn can have been taken back.
func (h *edgeHistory) revocable(p passed) bool {
	return h.c.Queues[p.queue].HoldTimeout > 0 || h.evicted(p).Before(farFuture)
}

var farFuture = time.Unix(math.MaxInt32, 0)

func (h *edgeHistory) evicted(p passed) time.Time {
	for _, e := range h.evictions {
		if e.queue == queueName(p.queue) && e.token == p.token {
			return e.at
		}
	}
	return farFuture
}

// holds are the holds of a visit, one for each queue whose turn it is part of.
func (h *edgeHistory) holds(v *edgeVisit) (found []hold) {
	a := h.answers[v.request]
	if a == nil {
		return nil
	}
	end := h.protectedUntil(v, a)
	if !end.After(v.entered) {
		return nil
	}
	for _, p := range h.protections(v) {
		token, _ := strconv.ParseUint(p.token, 10, 64)
		found = append(found, hold{
			visit: v, answer: a, queue: p.queue, token: token, from: v.entered, to: end,
			reader: h.c.Queues[p.queue].SharedMethods == a.client.Method,
		})
	}
	return found
}

// protectedUntil is the time until which nobody else may be inside because of a
// visit. If it may be cancelled, the turn may be handed on before the upstream
// notices that, and even before it notices the request.
func (h *edgeHistory) protectedUntil(v *edgeVisit, a *edgeAnswer) time.Time {
	cause := h.mayEnd(v, a)
	wrongly := !v.cancelled.IsZero() && v.cancelled.Before(cause) && !h.lacksBody(v, a)
	if wrongly || !v.left.After(cause) {
		return v.left
	}
	// An upstream that does not read a body notices nothing.
	blind := v.step.Unread && a.client.Body > 0
	if blind || !v.cancelled.IsZero() {
		return cause
	}
	return later(cause, v.left.Add(-unnoticed))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// mayEnd is the time from which a visit may be cancelled, and its turn may
// end.
func (h *edgeHistory) mayEnd(v *edgeVisit, a *edgeAnswer) time.Time {
	end := farFuture
	all, _ := passages(v)
	hangUpCancels := !a.hungUpAt().IsZero()
	for _, p := range all {
		q := h.c.Queues[p.queue]
		if q.HoldTimeout > 0 {
			end = earlier(end, h.notInsideBefore(a, p).Add(ms(q.HoldTimeout)))
		}
		end = earlier(end, h.evicted(p))
		hangUpCancels = hangUpCancels && q.Cancel
	}
	if hangUpCancels {
		end = earlier(end, a.hungUpAt())
	}
	if h.lacksBody(v, a) && !h.isKept(v) {
		return a.started
	}
	return end
}

// lacksBody reports whether the upstream may get less of the request's body than
// was announced to it, and take that for a cancellation.
func (h *edgeHistory) lacksBody(v *edgeVisit, a *edgeAnswer) bool {
	again := v.number > 0 && a.client.Body > 0 // Caddy cannot send a body twice
	broken := a.client.Garbage || a.wholeAt().IsZero()
	return again || broken && h.streams(v, a)
}

// isKept reports whether the turn lasts until an upstream that lacks the rest of the body
// has closed the connection. In error routes it does not: they come too late to see the
// body break off.
func (h *edgeHistory) isKept(v *edgeVisit) bool {
	all, _ := passages(v)
	return v.number == 0 && !v.inErrorRoute() && !slices.ContainsFunc(all, func(p passed) bool { return h.c.Queues[p.queue].Cancel })
}

// notInsideBefore is a time at which the request had not entered yet.
func (h *edgeHistory) notInsideBefore(a *edgeAnswer, p passed) time.Time {
	ticket := h.tickets[edgeTicketID{queueName(p.queue), p.token}]
	if ticket != nil && ticket.waiting.After(a.started) {
		return ticket.waiting
	}
	return a.started
}

// streams reports whether the request's body is larger than what any of the
// queues on its way reads before the ticket.
func (h *edgeHistory) streams(v *edgeVisit, a *edgeAnswer) bool {
	all, _ := passages(v)
	return a.client.Body > 0 && !slices.ContainsFunc(all, func(p passed) bool {
		return a.client.Body <= h.c.Queues[p.queue].limit()
	})
}

// capacity finds those who were inside together and must not be.
func (h *edgeHistory) capacity(queue int, holds []hold) (found []*violation) {
	q := h.c.Queues[queue]
	for i, s := range holds {
		others := make(map[string]hold)
		alone := !s.reader && (q.SharedMethods != "" || q.Concurrency < 2)
		for _, o := range holds[:i] {
			if o.answer == s.answer || !o.to.After(s.from) {
				continue
			}
			others[o.answer.request] = o
			writer := q.SharedMethods != "" && !o.reader
			if alone || writer {
				return append(found, &violation{"two inside", fmt.Sprintf("%s entered while inside was: %s; %v before that left",
					s, o, o.to.Sub(s.from).Round(time.Millisecond))})
			}
		}
		if limit := q.Concurrency; limit > 1 && len(others)+1 > limit {
			return append(found, &violation{"too many inside", fmt.Sprintf("%s entered as number %d of %d", s, len(others)+1, limit)})
		}
	}
	return found
}

// order finds those who entered without a token of their own, or before an
// earlier one.
func (h *edgeHistory) order(queue int, holds []hold) (found []*violation) {
	q := h.c.Queues[queue]
	last := make(map[bool]hold) // by whether it is a reader
	seen := make(map[string]hold)
	owner := make(map[uint64]hold)
	for _, s := range holds {
		if _, ok := seen[s.answer.request]; ok {
			continue
		}
		seen[s.answer.request] = s
		if s.token == 0 {
			found = append(found, &violation{"no token", fmt.Sprintf("%s is behind %s without a turn", s, queueName(queue))})
			continue
		}
		if o, ok := owner[s.token]; ok {
			found = append(found, &violation{"token twice", fmt.Sprintf("%s and %s", o, s)})
		}
		owner[s.token] = s
		if q.SharedMethods == "" && q.Concurrency > 1 {
			continue // side by side, they may reach the upstream in any order
		}
		for _, reader := range []bool{false, true} {
			if before, ok := last[reader]; ok && !(reader && s.reader) && before.token > s.token {
				found = append(found, &violation{"out of order", fmt.Sprintf("%s came after %s", s, before)})
			}
		}
		if before, ok := last[s.reader]; !ok || before.token < s.token {
			last[s.reader] = s
		}
	}
	return found
}

// early finds those who were let in before their body was here.
func (h *edgeHistory) early(v *edgeVisit) []*violation {
	a := h.answers[v.request]
	if a == nil || a.client.Body == 0 {
		return nil
	}
	whole := a.wholeAt()
	if !whole.IsZero() && !whole.After(v.entered) {
		return nil
	}
	all, _ := passages(v)
	for _, p := range all {
		if a.client.Body <= h.c.Queues[p.queue].limit() {
			return []*violation{{"let in early", fmt.Sprintf("%s %v, %d bytes, was let in before its body was here; sent whole: %t",
				a.name(), v.trail, a.client.Body, !whole.IsZero())}}
		}
	}
	return nil
}

// cancellation finds visits that were cancelled though nothing allowed it.
func (h *edgeHistory) cancellation(v *edgeVisit) []*violation {
	a := h.answers[v.request]
	all, _ := passages(v)
	if a == nil || len(all) == 0 || v.cancelled.IsZero() || !v.cancelled.Before(h.mayEnd(v, a)) || h.lacksBody(v, a) {
		return nil
	}
	return []*violation{{"cancelled", fmt.Sprintf("%s %v was cancelled %v after it had entered, %s", a.name(), v.trail,
		v.cancelled.Sub(v.entered).Round(time.Millisecond), a.ending(v.cancelled))}}
}

// ending says what the client had done by a time.
func (a *edgeAnswer) ending(by time.Time) string {
	if hungUp := a.hungUpAt(); !hungUp.IsZero() {
		return fmt.Sprintf("%v after its client had hung up", by.Sub(hungUp).Round(time.Millisecond))
	}
	return "with its client there"
}

// held finds turns that lasted for longer than they may.
func (h *edgeHistory) held(id edgeTicketID, ticket *edgeTicket) (found []*violation) {
	var queue int
	_, _ = fmt.Sscanf(id.queue, "q%d_", &queue)
	if ticket.inside.IsZero() || queue >= len(h.c.Queues) {
		return nil
	}
	held := ticket.stillInside.Sub(ticket.inside)
	if limit := ms(h.c.Queues[queue].HoldTimeout); limit > 0 && held > limit+promptly+leeway {
		found = append(found, &violation{"held too long", fmt.Sprintf("token %s of %s was inside for %v with a hold_timeout of %v",
			id.token, id.queue, held, limit)})
	}
	for _, e := range h.evictions {
		if after := ticket.stillInside.Sub(e.at); e.edgeTicketID == id && after > promptly+leeway {
			found = append(found, &violation{"held too long", fmt.Sprintf("token %s of %s was inside for %v after it was evicted", id.token, id.queue, after)})
		}
	}
	return found
}

// lingers finds clients that hung up while they waited and kept their place.
func (h *edgeHistory) lingers(id edgeTicketID, ticket *edgeTicket) []*violation {
	for _, a := range h.answers {
		hungUp := a.hungUpAt()
		if a.port != ticket.port || hungUp.IsZero() || ticket.waiting.IsZero() || a.client.Extra && runtime.GOOS != "linux" {
			continue
		}
		if after := ticket.waiting.Sub(hungUp); after > promptly+leeway && a.client.Body <= h.leastLimit() {
			return []*violation{{"left in the queue", fmt.Sprintf("%s still waited as token %s of %s %v after it had hung up",
				a.name(), id.token, id.queue, after)}}
		}
	}
	return nil
}

func (h *edgeHistory) leastLimit() int {
	return slices.MinFunc(h.c.Queues, func(a, b edgeQueue) int { return cmp.Compare(a.limit(), b.limit()) }).limit()
}

// answered finds clients that read and got no answer, or not the whole of it.
func (h *edgeHistory) answered(a *edgeAnswer) []*violation {
	c := a.client
	if a.err == nil || c.HangUp != "" || c.Limit > 0 || c.Garbage || a.excused(h) {
		return nil
	}
	return []*violation{{"no answer", fmt.Sprintf("%s, after %v: status %d, %v", a.name(), a.ended.Sub(a.started).Round(time.Millisecond), a.status, a.err)}}
}

// excused reports whether an answer may break off.
func (a *edgeAnswer) excused(h *edgeHistory) bool {
	halves := slices.ContainsFunc(a.client.Steps, func(s edgeStep) bool { return s.Do == doHalf })
	if a.status != 0 && (halves || len(h.evictions) > 0) {
		return true
	}
	// Caddy closes idle connections, and those that nobody had accepted.
	if a.status == 0 && len(h.c.Reloads) > 0 && !h.visited(a) {
		return true
	}
	// Once it has begun, an answer breaks off when the turn is revoked. It may
	// have begun in the server only. A client that sends too slowly is cut off,
	// too.
	broken := a.status != 0 || a.client.Pause > 0 || h.wasAnswered(a)
	return broken && slices.ContainsFunc(h.c.Queues, func(q edgeQueue) bool {
		return q.HoldTimeout > 0 && a.ended.Sub(a.started) >= ms(q.HoldTimeout)
	})
}

// wasAnswered reports whether the upstream was just answering the request when
// the connection broke.
func (h *edgeHistory) wasAnswered(a *edgeAnswer) bool {
	return slices.ContainsFunc(h.visits, func(v *edgeVisit) bool {
		return v.request == a.request && v.cancelled.IsZero() && a.ended.Sub(v.left) < unnoticed
	})
}

func (h *edgeHistory) visited(a *edgeAnswer) bool {
	return slices.ContainsFunc(h.visits, func(v *edgeVisit) bool { return v.request == a.request })
}
