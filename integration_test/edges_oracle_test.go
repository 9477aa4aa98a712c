//go:build unix

package integration_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	promptly = time.Second             // a revoked turn ends, and a client that hangs up leaves,
	leeway   = 1500 * time.Millisecond // on a busy machine later
)

var farFuture = time.Unix(math.MaxInt32, 0)

// edgeHistory is what happened in a case.
type edgeHistory struct {
	c       *edgeCase
	answers map[string]*edgeAnswer // by request
	hits    []*edgeHit
	found   []string // broken promises

	// late is how much longer than usual something may take on the machine, as it was busy meanwhile.
	late time.Duration
}

// unnoticed is the time until an upstream on a busy machine notices that it was cancelled.
func (h *edgeHistory) unnoticed() time.Duration { return 500*time.Millisecond + h.late }

func (h *edgeHistory) violated(kind, format string, args ...any) {
	h.found = append(h.found, kind+": "+fmt.Sprintf(format, args...))
}

// edgeSpan is a hit with the turns that it is part of.
type edgeSpan struct {
	*edgeHit
	answer *edgeAnswer
	turns  []edgeTurn
	short  bool      // the upstream may get less of a body than was announced to it
	mayEnd time.Time // from when it may be cancelled, and its turns may end
	until  time.Time // nobody else may be inside before
}

// edgeTurn is a request's turn in a queue.
type edgeTurn struct {
	queue  int
	token  uint64
	rule   edgeRule
	waited time.Duration
}

// edgeHold is a span, as one of its queues sees it.
type edgeHold struct {
	*edgeSpan
	edgeTurn
}

func (s *edgeSpan) String() string {
	text := fmt.Sprintf("%s %v", s.request, s.trail)
	events := map[string]time.Time{"left": s.left, "cancelled": s.cancelled, "client hung up": s.answer.hungUp}
	for name, when := range events {
		if !when.IsZero() {
			text += fmt.Sprintf(", %s after %v", name, when.Sub(s.entered).Round(time.Millisecond))
		}
	}
	return text
}

// judge finds the broken promises of a case, the gravest first.
func (h *edgeHistory) judge() {
	holds := make([][]edgeHold, len(h.c.Queues))
	var spans []*edgeSpan
	for _, v := range h.hits {
		a := h.answers[v.request]
		if a == nil {
			continue
		}
		s := &edgeSpan{edgeHit: v, answer: a}
		spans = append(spans, s)
		h.follow(s)
		h.measure(s)
		for _, t := range s.turns {
			if s.until.After(s.entered) {
				holds[t.queue] = append(holds[t.queue], edgeHold{s, t})
			}
		}
	}
	for _, holds := range holds {
		h.checkQueue(holds)
	}
	for _, s := range spans {
		h.checkBody(s)
		h.checkEnd(s)
	}
	for _, a := range h.answers {
		h.checkAnswer(a)
	}
}

// follow reads the marks of a hit: which lines of the configuration the request has
// passed, and what these did. Turns end before the error routes begin.
func (h *edgeHistory) follow(s *edgeSpan) {
	off, tokens, refusedBy := false, []string{""}, -1
	for _, mark := range s.trail {
		if mark == "off" {
			off = true
			continue
		}
		kind, rest, _ := strings.Cut(mark, "=")
		token, name, _ := strings.Cut(rest, "=")
		number, _ := strconv.ParseUint(token, 10, 64) // without a turn, it is no number
		if number == 0 {
			token = ""
		}
		name, waited, _ := strings.Cut(name, "=")
		var queue int
		known, _ := fmt.Sscanf(name, "q%d_", &queue)
		if strings.HasPrefix(kind, "!") {
			s.turns, tokens = nil, append(tokens, token)
			if known == 1 && (number == 0 || waited != "") { // which is the reason
				refusedBy = queue
			}
			continue
		}
		again := slices.IndexFunc(s.turns, func(t edgeTurn) bool { return t.queue == queue })
		rule := h.c.Queues[queue].rule(kind == "strict", s.answer.client.Method)
		switch isNew := !slices.Contains(tokens, token); {
		case off && isNew:
			h.violated("ticket in spite of off", "%v", s)
		case off:
		case again >= 0 && isNew:
			h.violated("two tickets", "%v", s)
		case again >= 0 && rule.alone() && !s.turns[again].rule.alone():
			h.violated("stricter line passed", "%v", s)
		case again >= 0:
		case refusedBy == queue:
			h.violated("let in after refusal", "%v", s)
		default:
			if number == 0 {
				h.violated("no token", "%v", s)
			}
			tokens = append(tokens, token)
			wait, _ := time.ParseDuration(waited + "ms")
			s.turns = append(s.turns, edgeTurn{queue, number, rule, wait})
		}
	}
}

// measure determines how long a hit must be protected. If it may be cancelled, the turn
// may be handed on before the upstream notices that, and even before it notices the
// request.
func (h *edgeHistory) measure(s *edgeSpan) {
	s.short = h.lacksBody(s)
	s.mayEnd, s.until = h.end(s), s.left
	switch cancelled := !s.cancelled.IsZero(); {
	case cancelled && s.cancelled.Before(s.mayEnd) && !s.short:
	case !s.left.After(s.mayEnd):
	case cancelled, s.step.Unread && s.answer.client.Body > 0: // it notices nothing before it has read the body
		s.until = s.mayEnd
	default:
		s.until = lastOf(s.mayEnd, s.left.Add(-h.unnoticed()))
	}
}

func lastOf(times ...time.Time) time.Time  { return slices.MaxFunc(times, time.Time.Compare) }
func firstOf(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// end is the time from which a hit may be cancelled, and its turns may end.
func (h *edgeHistory) end(s *edgeSpan) time.Time {
	a, end := s.answer, farFuture
	withClient := true
	for _, t := range s.turns {
		q := h.c.Queues[t.queue]
		if q.HoldTimeout > 0 {
			end = firstOf(end, a.started.Add(t.waited+ms(q.HoldTimeout)))
		}
		withClient = withClient && q.Cancel
	}
	switch {
	case s.short && (s.number > 0 || a.client.Garbage || a.hungUp.IsZero() || s.inErrorRoute()):
		return a.started
	case s.short || (withClient || s.step.Do == "events") && !a.hungUp.IsZero():
		return firstOf(end, a.hungUp)
	}
	return end
}

// lacksBody reports whether the upstream may get less of the body than was announced to
// it, and take that for a cancellation. That is so for bodies that break off while they
// stream. And Caddy cannot send a body twice.
func (h *edgeHistory) lacksBody(s *edgeSpan) bool {
	a := s.answer
	refused := strings.Contains(strings.Join(s.trail, " "), "!413")
	if a.client.Body == 0 || s.number > 0 || refused {
		return a.client.Body > 0
	}
	buffered := slices.ContainsFunc(s.turns, func(t edgeTurn) bool { return !h.c.Queues[t.queue].streams() })
	return !buffered && (a.client.Garbage || a.whole.IsZero() || !a.hungUp.IsZero())
}

// checkQueue finds those who were inside together and must not be, and those who entered
// before an earlier ticket, or with another's. A ticket's rule concerns the tickets before.
func (h *edgeHistory) checkQueue(holds []edgeHold) {
	slices.SortFunc(holds, func(a, b edgeHold) int { return a.entered.Compare(b.entered) })
	for i, s := range holds {
		together := []edgeHold{s}
		for _, o := range holds[:i] {
			isNew := !slices.ContainsFunc(together, func(t edgeHold) bool { return t.answer == o.answer })
			if isNew && o.until.After(s.entered) {
				together = append(together, o)
			}
			sideBySide := o.rule.reader && s.rule.reader || o.rule.limit > 1 // they may reach the upstream in any order
			switch {
			case o.answer == s.answer:
			case o.token == s.token && s.token > 0:
				h.violated("token twice", "%v and %v", o.edgeSpan, s.edgeSpan)
			case o.token > s.token && !sideBySide:
				h.violated("out of order", "%v came after %v", s.edgeSpan, o.edgeSpan)
			}
		}
		slices.SortStableFunc(together, func(a, b edgeHold) int { return cmp.Compare(a.token, b.token) })
		readers := 0
		for others, t := range together {
			if !t.rule.admits(others, readers) {
				h.violated("two inside", "%v when %v entered", together, s.edgeSpan)
			}
			if t.rule.reader {
				readers++
			}
		}
	}
}

// checkBody finds those who were let in before their body was here, and bodies that have
// changed.
func (h *edgeHistory) checkBody(s *edgeSpan) {
	a := s.answer
	if a.client.Body == 0 || s.number > 0 {
		return
	}
	// For the lines inside the first one that reads the body, it is here.
	if i := slices.IndexFunc(s.turns, func(t edgeTurn) bool { return !h.c.Queues[t.queue].streams() }); i >= 0 {
		if a.whole.IsZero() || a.whole.After(s.entered) {
			h.violated("let in early", "%v, %d bytes, was let in before its body was here", s, a.client.Body)
		}
		if limit := h.c.Queues[s.turns[i].queue].limit(); a.client.Body > limit && !s.inErrorRoute() {
			h.violated("too large", "%v, %d bytes, was let in, with a buffer of %d", s, a.client.Body, limit)
		}
	}
	if s.cancelled.IsZero() && !s.short && !s.step.Unread && s.received != int64(a.client.Body) {
		h.violated("body changed", "%v has %d bytes, and %d reached the upstream", s, a.client.Body, s.received)
	}
}

// checkEnd finds hits that were cancelled though nothing allowed it, and streams that
// went on without their client.
func (h *edgeHistory) checkEnd(s *edgeSpan) {
	if len(s.turns) == 0 {
		return
	}
	if !s.cancelled.IsZero() && s.cancelled.Before(s.mayEnd) && !s.short {
		h.violated("cancelled", "%v", s)
	}
	hungUp := s.answer.hungUp
	if s.step.Do == "events" && !hungUp.IsZero() && s.left.Sub(lastOf(hungUp, s.entered)) > promptly+leeway+h.late {
		h.violated("stream went on", "%v", s)
	}
}

// checkAnswer finds clients that read and got no answer, or not the whole of it, or one
// that nobody can explain.
func (h *edgeHistory) checkAnswer(a *edgeAnswer) {
	c := a.client
	if c.HangUp != "" || c.Limit > 0 || c.Read == "never" {
		return
	}
	revocable := slices.ContainsFunc(h.c.Queues, func(q edgeQueue) bool {
		return q.HoldTimeout > 0 && a.ended.Sub(a.started) >= ms(q.HoldTimeout)
	})
	tooLarge := slices.ContainsFunc(h.c.Queues, func(q edgeQueue) bool { return !q.streams() && c.Body > q.limit() })
	explained := slices.Contains([]int{0, 200, 418, 502, 503}, a.status) ||
		a.status == 400 && c.Garbage || a.status == 504 && revocable || a.status == 413 && tooLarge
	after := a.ended.Sub(a.started).Round(time.Millisecond)
	if !explained {
		h.violated("wrong answer", "%s, after %v: status %d", a.request, after, a.status)
	}
	if a.err != nil && !c.Garbage && !h.mayBreakOff(a, revocable) {
		h.violated("no answer", "%s, after %v: status %d, %v", a.request, after, a.status, a.err)
	}
}

// mayBreakOff reports whether the client may get a part of an answer, or none.
func (h *edgeHistory) mayBreakOff(a *edgeAnswer, revocable bool) bool {
	reached, begun := false, a.status != 0 // perhaps in the server only
	for _, v := range h.hits {
		reached = reached || v.request == a.request
		begun = begun || v.request == a.request && v.cancelled.IsZero() && a.ended.Sub(v.left) < h.unnoticed()
	}
	closed := a.status == 0 && h.c.Reload > 0 && !reached // idle, or not accepted yet
	halves := slices.ContainsFunc(a.client.Steps, func(s edgeStep) bool { return s.Do == "half" })
	// Once it has begun, an answer breaks off when the turn is revoked. A client that
	// sends too slowly is cut off, too.
	return closed || a.status != 0 && halves || revocable && (begun || a.client.Pause > 0)
}
