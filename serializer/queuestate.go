package serializer

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// QueueState is a queue at one moment.
type QueueState struct {
	Path    string `json:"path"`   // [Engine.Path]: a directory, or the store's name for its place
	Prefix  string `json:"prefix"` // the queue's name
	Limit   int    `json:"limit"`  // how many may be inside together, by the rules of the tickets; 0 means no limit
	Inside  int    `json:"inside"`
	Waiting int    `json:"waiting"`

	// PausedUntil is when the pause of the queue ends, or nil if it is not paused. It is
	// [Forever] for a pause without an end.
	PausedUntil *time.Time `json:"paused_until,omitempty"`

	Tickets []TicketState `json:"tickets"` // in order
}

// TicketState is one ticket of a [QueueState].
type TicketState struct {
	Token   string    `json:"token"`            // the ticket's number, in decimal
	State   string    `json:"state"`            // [StateInside] or [StateWaiting]
	Since   time.Time `json:"since"`            // Entered if it is known, otherwise Arrived
	Arrived time.Time `json:"arrived"`          // when the ticket was issued
	Entered time.Time `json:"entered,omitzero"` // when a holder of this process entered; otherwise zero
	Revoked time.Time `json:"revoked,omitzero"` // when the turn of a holder of this process was taken back; otherwise zero

	// HeldUntil is when a turn of this process ends whose request has left. Requests is how many
	// requests a visit of this process has had, and LastRequest when the latest came or ended. All
	// are zero of other tickets. The engine leaves them to its users, as it does Revoked.
	HeldUntil   time.Time `json:"held_until,omitzero"`
	Requests    int       `json:"requests,omitempty"`
	LastRequest time.Time `json:"last_request,omitzero"`

	Slot   string `json:"slot,omitempty"`  // which of [Arrival.Slots] a holder has, if that is known
	Client string `json:"client"`          // address and port
	Owner  string `json:"owner"`           // the process, for people
	Alive  *bool  `json:"alive,omitempty"` // whether the owner is alive; nil if that is not known

	// Requester is that of the [Arrival], if this process serves it. Request is its answer, in
	// lists of [Engine.Queues].
	Requester Requester `json:"-"`
	Request   *Request  `json:"request,omitempty"`
}

// The states of a ticket.
const (
	StateInside  = "inside"
	StateWaiting = "waiting"
)

// Request describes the request for which an arrival asks for its turn.
type Request struct {
	Method   string `json:"method"`
	Host     string `json:"host"`
	Path     string `json:"path"`      // without the query, which may hold secrets
	ClientIP string `json:"client_ip"` // of the client that sent the request, not of a proxy in between
	TXID     string `json:"txid"`      // its name in logs; empty if it has none

	// Label stands in place of all of the above for work that is no request of HTTP.
	Label string `json:"label,omitempty"`
}

// Texts are all texts, which a client chose. Lists make them harmless and short.
func (r *Request) Texts() []*string {
	return []*string{&r.Method, &r.Host, &r.Path, &r.ClientIP, &r.TXID, &r.Label}
}

// Requester knows the request that an [Arrival] is for.
type Requester interface {
	// Request describes the request. It may be called from any goroutine and at any
	// time, even when the turn is over.
	Request() Request
}

// Label is a [Requester] for work that is no request of HTTP. Only lists of its own process have it, as
// [TicketState.Request].
type Label string

// Request implements [Requester].
func (l Label) Request() Request { return Request{Label: string(l)} }

// Queues lists every queue that has tickets or is paused, ordered by prefix. A ticket of
// this process comes with the [Arrival.Requester] it was taken for, and its answer. Queues
// returns when ctx is done.
func (e *Engine) Queues(ctx context.Context) ([]QueueState, error) {
	if err := e.using(ctx, e.store.Sync); err != nil {
		return nil, err
	}
	queues := e.Known(func(string) bool { return true })
	for _, q := range queues {
		for i := range q.Tickets {
			if t := &q.Tickets[i]; t.Requester != nil {
				t.Request = new(t.Requester.Request())
			}
		}
	}
	return queues, nil
}

// Known lists queues, as Queues does, without asking the store or requesters: what the engine has
// heard of other processes may be late. It never blocks. A pause of many queues is listed by its name
// with a *.
func (e *Engine) Known(wanted func(name string) bool) []QueueState {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, slots := time.Now(), e.slotsLocked()
	states := make([]QueueState, 0, len(e.queues))
	for name, end := range e.pauses {
		if q := e.queues[name]; wanted(name) && (q == nil || q == e.empty) {
			states = append(states, QueueState{Path: e.Path(), Prefix: name, PausedUntil: &end, Tickets: []TicketState{}})
		}
	}
	for _, q := range e.queues {
		if q != e.empty && !isSlotQueue(q.name) && wanted(q.name) {
			e.admitLocked(q) // the remote tickets that are inside a paused queue
			states = append(states, e.describeLocked(q, now, slots))
		}
	}
	slices.SortFunc(states, func(a, b QueueState) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return states
}

func (e *Engine) describeLocked(q *ticketQueue, now time.Time, slots map[string]string) QueueState {
	state := QueueState{Path: e.Path(), Prefix: q.name, PausedUntil: e.pausedUntilLocked(q.name), Tickets: []TicketState{}}
	for t := range q.all() {
		ticket := t.describeLocked(now)
		if t == q.first {
			state.Limit = t.Rule.Capacity()
		}
		state.Limit = Wider(state.Limit, t.Rule.Capacity())
		if ticket.State == StateInside {
			state.Inside++
			ticket.Slot = cmp.Or(ticket.Slot, slots[holderAddress(t)])
		}
		state.Tickets = append(state.Tickets, ticket)
	}
	state.Waiting = len(state.Tickets) - state.Inside
	return state
}

// Wider returns the greater of two capacities, where 0 means no limit.
func Wider(a, b int) int {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}
