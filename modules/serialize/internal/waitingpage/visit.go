package waitingpage

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Visits are the settings of a line whose turns are visits.
type Visits struct {
	Idle    time.Duration // until the end of a visit without requests
	Longest time.Duration // of a visit; 0 is no limit
}

// visit is a ticket's turn that has become a visit: all requests of its browser pass by it.
// While none is under way, the ticket is inside without a caller, by [serializer.Turn.LeaveAt].
// So a visit needs no timer of its own.
//
// The lock of the ticket guards it.
type visit struct {
	Visits      // of the line to which the latest request came
	began, last time.Time
	parts       []*Part       // the requests under way; nil if there are none
	requests    int           // that there have been
	stay        time.Duration // in place of Idle, once; 0 is none
	revoked     error         // why the turn was taken back, or nil
	left        sync.Once
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
func (b *Book) Visit(w http.ResponseWriter, r *http.Request, line *Line, queue string, revoke func(error)) (*Part, error) {
	k := b.find(r, line.Space, queue)
	if r.Header.Get(askHeader) != "" {
		return nil, nil
	}
	if p := k.ticket.part(line.Visits, revoke); p != nil {
		k.ticket.setCookie(w, r, k, visitor)
		return p, nil
	}
	if k.visited && !line.Serves(r) {
		return nil, visitEnded(queue)
	}
	return nil, nil
}

// Knows reports whether a request has the cookie of a browser in a queue whose turns are visits.
func (b *Book) Knows(r *http.Request, space, queue string) bool {
	return len(taken(r)) > 0 && b.find(r, space, queue).id != ""
}

// beginLocked makes the turn a visit, with a first request that is inside.
func (t *Ticket) beginLocked(n *Navigation) *Part {
	now := time.Now()
	t.state = visiting
	t.place.Store(nil)
	t.visit = &visit{began: now}
	t.turn.SetCaller(t, t.revokeVisit)
	t.about.Late = t.about.Since.Sub(t.came)
	t.line.Report.Entered(&t.about)
	p := t.addLocked(n.Line.Visits, n.Revoke)
	p.inside = true
	return p
}

func (t *Ticket) part(visits *Visits, revoke func(error)) *Part {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.partLocked(visits, revoke)
}

// partLocked lets a request take part in the visit. It returns nil if there is none, or if it has
// ended. With visits nil, the line has no visits any more, and this one ends as it would have.
func (t *Ticket) partLocked(visits *Visits, revoke func(error)) *Part {
	if t.state != visiting {
		return nil
	}
	v := t.visit
	if visits == nil {
		visits = &v.Visits
	}
	past := visits.Longest > 0 && time.Since(v.began) >= visits.Longest
	if past || len(v.parts) == 0 && !t.turn.Reenter() {
		t.closeLocked()
		return nil
	}
	if len(v.parts) == 0 {
		v.stay = 0
	}
	return t.addLocked(visits, revoke)
}

func (t *Ticket) addLocked(visits *Visits, revoke func(error)) *Part {
	p := &Part{ticket: t, revoke: revoke}
	v := t.visit
	v.Visits, v.last = *visits, time.Now()
	v.parts = append(v.parts, p)
	v.requests++
	return p
}

// closeLocked lets no more requests take part in the visit.
func (t *Ticket) closeLocked() {
	t.state = over
	t.book.remove(t)
}

// isInUse reports whether a request is inside by the turn.
func (v *visit) isInUse() bool {
	return slices.ContainsFunc(v.parts, func(p *Part) bool { return p.inside })
}

// Enter puts the request inside once its body is here, and returns the turn. The error is a
// [serializer.Refused] if the visit was taken back meanwhile.
func (p *Part) Enter() (serializer.Turn, error) {
	t := p.ticket
	t.mu.Lock()
	defer t.mu.Unlock()
	if cause := t.visit.revoked; cause != nil {
		return nil, &serializer.Refused{Reason: serializer.ReasonOf(cause), Queue: t.about.Queue, Token: t.turn.Token(), Err: cause}
	}
	p.inside = true
	return t.turn, nil
}

// LeaveAfter ends the visit with the requests that are under way.
func (p *Part) LeaveAfter() {
	t := p.ticket
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeLocked()
}

// Stay lets the visit last for a time without requests, once.
func (p *Part) Stay(idle time.Duration) {
	p.ticket.mu.Lock()
	defer p.ticket.mu.Unlock()
	p.ticket.visit.stay = idle
}

// Leave ends the request. Calls after the first do nothing. p may be nil.
func (p *Part) Leave() {
	if p != nil && p.leave() {
		p.ticket.leaveVisit()
	}
}

// leave reports whether the turn ends now.
func (p *Part) leave() bool {
	t := p.ticket
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.visit
	i := slices.Index(v.parts, p)
	if i < 0 {
		return false
	}
	if v.parts = slices.Delete(v.parts, i, i+1); len(v.parts) == 0 {
		v.parts = nil
	}
	v.last = time.Now()
	switch {
	case v.revoked != nil:
		return !v.isInUse()
	case len(v.parts) > 0:
		return false
	case t.state == over:
		return true
	}
	t.turn.LeaveAt(v.endLocked(), t.endVisit)
	return false
}

// endLocked is when the visit ends if nothing comes.
func (v *visit) endLocked() time.Time {
	end := v.last.Add(cmp.Or(v.stay, v.Idle))
	if last := v.began.Add(v.Longest); v.Longest > 0 && last.Before(end) {
		return last
	}
	return end
}

// endVisit runs when the turn has ended that no request was left to use.
func (t *Ticket) endVisit() {
	t.mu.Lock()
	t.closeLocked()
	t.mu.Unlock()
	t.leaveVisit()
}

// revokeVisit runs when the turn was taken back. Requests that are inside are cancelled then,
// and keep the turn until they have left.
func (t *Ticket) revokeVisit(cause error) {
	t.mu.Lock()
	t.closeLocked()
	t.visit.revoked = cause
	cancelled, ends := slices.Clone(t.visit.parts), !t.visit.isInUse()
	t.mu.Unlock()
	for _, p := range cancelled {
		p.revoke(cause)
	}
	if ends {
		t.leaveVisit()
	}
}

// leaveVisit leaves the turn of the visit, and gives back what the visit had.
func (t *Ticket) leaveVisit() {
	t.visit.left.Do(func() {
		t.turn.Leave()
		t.line.Report.VisitEnded(&t.about)
		t.engine.Release()
	})
}

// Visited is how many requests the visit of the ticket has had, and when the latest one came or
// ended. Without a visit, it returns zeros.
func (t *Ticket) Visited() (requests int, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.visit == nil {
		return 0, time.Time{}
	}
	return t.visit.requests, t.visit.last
}
