package serializer

import "time"

// QueueState is a queue at one moment.
type QueueState struct {
	Path    string `json:"path"`   // [Engine.Path]: a directory, or the engine's name for its storage
	Prefix  string `json:"prefix"` // the queue's name
	Limit   int    `json:"limit"`  // how many may be inside together, by the rules of the tickets; 0 means no limit
	Inside  int    `json:"inside"`
	Waiting int    `json:"waiting"`

	// PausedUntil is when the pause of the queue ends, or nil if it is not paused. See
	// [Pauser] and [Resumed].
	PausedUntil *time.Time `json:"paused_until,omitempty"`

	// Groups are the groups of the tickets, as far as they are known; see
	// [Arrival.Group].
	Groups []string `json:"groups,omitempty"`

	Tickets []TicketState `json:"tickets"` // in order
}

// Add appends a ticket to the queue and counts it. Tickets are added in order.
func (q *QueueState) Add(t TicketState, r Rule) {
	if t.State == StateInside {
		q.Inside++
	} else {
		q.Waiting++
	}
	if len(q.Tickets) == 0 {
		q.Limit = r.Capacity()
	} else {
		q.Limit = Wider(q.Limit, r.Capacity())
	}
	q.Tickets = append(q.Tickets, t)
}

// Wider returns the greater of two capacities, where 0 means no limit.
func Wider(a, b int) int {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// TicketState is one ticket of a [QueueState].
type TicketState struct {
	Token   string    `json:"token"`            // the ticket's number, in decimal
	State   string    `json:"state"`            // [StateInside] or [StateWaiting]
	Since   time.Time `json:"since"`            // Entered if it is known, otherwise Arrived
	Arrived time.Time `json:"arrived"`          // when the ticket was issued
	Entered time.Time `json:"entered,omitzero"` // when a holder of this process entered; otherwise zero
	Client  string    `json:"client"`           // address and port
	Owner   string    `json:"owner"`            // the process, for people
	Alive   *bool     `json:"alive,omitempty"`  // whether the owner is alive; nil if the engine does not know

	// Requester is that of the [Arrival], if this process serves it. Request is for its
	// answer. Engines leave Request nil, because they would have to ask while they hold
	// their locks.
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
}

// Requester knows the request that an [Arrival] is for.
type Requester interface {
	// Request describes the request. It may be called from any goroutine and at any
	// time, even when the turn is over.
	Request() Request
}

// Counter is an [Engine] that can count the tickets of a queue without waiting. It is
// optional. If the engine is a Counter, the Caddy plugin can refuse a request of a full
// queue before the client sends a body with "Expect: 100-continue", and before a body
// needs a file. Otherwise, it refuses only when the request asks for its turn.
type Counter interface {
	// Count returns how many are inside a queue, and how many wait. It asks no other
	// process, and never blocks. There may be more tickets than it knows of, but all
	// that it counts as waiting are ahead of a new arrival.
	Count(queue string) (inside, waiting int)
}
