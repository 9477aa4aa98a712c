package waitingpage

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Visits are the settings of a line whose turns are visits.
type Visits struct {
	Idle    time.Duration // until the end of a visit without requests
	Longest time.Duration // of a visit; 0 is no limit
}

// visit is a ticket's turn that has become a visit: all requests of its browser pass by it. While
// none is under way, the ticket is inside without one.
//
// The lock of the ticket guards it.
type visit struct {
	*Visits  // of the line to which the latest request came
	began    time.Time
	parts    []*Part       // the requests under way; nil if there are none
	requests int           // that there have been
	stay     time.Duration // in place of Idle, once; 0 is none
}

// Part is a request's part in the visit of its browser, until Leave.
type Part struct {
	ticket *Ticket
	revoke func(cause error)
	inside bool // past its body, so the turn must not end
}

var errVisitEnded = errors.New("the visit has ended before this request: nothing was sent; open the site again")

// visitEnded is the refusal of a request that is no navigation and whose visit is over: its
// browser believes that it is still inside.
func visitEnded(queue string) error {
	return &serializer.Refused{Reason: telemetry.ReasonVisitEnded, Queue: queue, Err: errVisitEnded}
}

// newID is an id for a ticket.
func (n *Navigation) newID() string {
	if n.Line.Visits == nil && n.Opening == nil {
		return rand.Text()
	}
	return queueMark(n.Line.Space, n.Queue) + rand.Text()
}

// Visit returns a request's part in the visit of its browser. It is nil if the browser has
// none. Then the error is a refusal if it had one, and the request is no navigation.
// Revoke is called when the visit is taken back, as [serializer.Arrival.Revoke].
func (b *Book) Visit(w http.ResponseWriter, r *http.Request, line *Line, queue string, revoke func(error)) (p *Part, err error) {
	k := b.find(r, line.Space, queue)
	if r.Header.Get(askHeader) != "" {
		return nil, nil
	}
	if t := k.ticket; t != nil {
		t.locked(func() { p = t.partLocked(line.Visits, revoke) })
	}
	if p != nil {
		k.ticket.setCookie(w, r, k, visitor)
	} else if k.kind == visitor && !line.Serves(r) {
		err = visitEnded(queue)
	}
	return p, err
}

// Knows reports whether a request has the cookie of a browser in a queue whose turns are visits.
func (b *Book) Knows(r *http.Request, space, queue string) bool {
	return len(taken(r)) > 0 && b.find(r, space, queue).id != ""
}

func (t *Ticket) isVisit() (is bool) {
	t.locked(func() { is = t.visit != nil })
	return is
}

// beginLocked makes the turn a visit.
func (t *Ticket) beginLocked() {
	t.state, t.visit = visiting, &visit{began: time.Now()}
	t.place.Store(nil)
	t.line.Load().Report.Entered(&t.about)
}

// partLocked lets a request take part in the visit. It returns nil if there is none, or if it has
// ended. With visits nil, the line has no visits any more, and this one ends as it would have.
func (t *Ticket) partLocked(visits *Visits, revoke func(error)) *Part {
	v := t.visit
	if t.state != visiting {
		return nil
	}
	v.Visits = cmp.Or(visits, v.Visits)
	if v.Longest > 0 && time.Since(v.began) >= v.Longest {
		t.closeLocked()
		return nil
	}
	if len(v.parts) == 0 {
		v.stay = 0
	}
	p := &Part{ticket: t, revoke: revoke}
	t.arriveLocked()
	t.seen = time.Now()
	v.parts = append(v.parts, p)
	v.requests++
	return p
}

// closeLocked lets no more requests take part in the visit. It ends when all that do have left. If its
// turn was taken back, those whose bodies are still being read do not count.
func (t *Ticket) closeLocked() {
	t.forgetLocked()
	counts := func(p *Part) bool { return p.inside || t.err == nil }
	if t.turn != nil && !slices.ContainsFunc(t.visit.parts, counts) {
		t.line.Load().Report.VisitEnded(&t.about)
		t.releaseLocked()
	}
}

// Enter puts the request inside once its body is here, and returns the turn. The error is a
// [serializer.Refused] if the visit was taken back meanwhile.
func (p *Part) Enter() (turn serializer.Turn, err error) {
	p.ticket.locked(func() {
		if err = p.ticket.err; err == nil {
			p.inside, turn = true, p.ticket.turn
		}
	})
	return turn, err
}

// LeaveAfter ends the visit with the requests that are under way.
func (p *Part) LeaveAfter() { p.ticket.locked(p.ticket.closeLocked) }

// Stay lets the visit last for a time without requests, once.
func (p *Part) Stay(idle time.Duration) { p.ticket.locked(func() { p.ticket.visit.stay = idle }) }

// Leave ends the request. Calls after the first do nothing. p may be nil.
func (p *Part) Leave() {
	if p == nil {
		return
	}
	t := p.ticket
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.visit
	i := slices.Index(v.parts, p)
	if i < 0 {
		return
	}
	if v.parts = slices.Delete(v.parts, i, i+1); len(v.parts) == 0 {
		v.parts = nil
	}
	if t.departLocked(); t.state == over {
		t.closeLocked()
	}
}

// end is when the visit ends if nothing comes any more. The last request has ended at a moment.
func (v *visit) end(last time.Time) time.Time {
	end := last.Add(cmp.Or(v.stay, v.Idle))
	if longest := v.began.Add(v.Longest); v.Longest > 0 && longest.Before(end) {
		return longest
	}
	return end
}

// Visited is how many requests the visit of the ticket has had, and when the latest one came or
// ended. If none is under way, until is when the visit ends. Without a visit, all are zero.
func (t *Ticket) Visited() (requests int, last, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.visit == nil {
		return 0, last, until
	}
	if len(t.visit.parts) == 0 {
		until = t.visit.end(t.seen)
	}
	return t.visit.requests, t.seen, until
}
