package serializer

import "time"

// QueueState is a queue at one moment.
type QueueState struct {
	Path    string `json:"path"`   // the directory, or the engine's name for the place it keeps queues in
	Prefix  string `json:"prefix"` // the queue's name
	Limit   int    `json:"limit"`  // how many may be inside together, by the rules of the tickets; 0 is no limit
	Inside  int    `json:"inside"`
	Waiting int    `json:"waiting"`

	// PausedUntil is when the pause of a paused queue ends, and nil for others.
	// See [Pauser] and [Resumed].
	PausedUntil *time.Time `json:"paused_until,omitempty"`

	// Groups are those of the tickets, as far as it is known; see [Arrival.Group].
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

// Wider returns the greater of two capacities, of which 0 is no limit.
func Wider(a, b int) int {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// TicketState is one ticket of a [QueueState].
type TicketState struct {
	Token   string    `json:"token"`
	State   string    `json:"state"`            // [StateInside] or [StateWaiting]
	Since   time.Time `json:"since"`            // Entered where it is known, else Arrived
	Arrived time.Time `json:"arrived"`          // when the ticket was given out
	Entered time.Time `json:"entered,omitzero"` // of one that is inside, where this process serves it; else zero
	Client  string    `json:"client"`           // address and port
	Owner   string    `json:"owner"`            // the process, for people
	Alive   *bool     `json:"alive,omitempty"`  // whether the owner runs, where that was asked for

	// Requester is that of the [Arrival], where this process serves it.
	// Request is for its answer. Engines leave it nil; they would have to ask
	// while they hold their locks.
	Requester Requester `json:"-"`
	Request   *Request  `json:"request,omitempty"`
}

// The states of a ticket.
const (
	StateInside  = "inside"
	StateWaiting = "waiting"
)

// Request is what an arrival wants its turn for.
type Request struct {
	Method   string `json:"method"`
	Host     string `json:"host"`
	Path     string `json:"path"`      // without the query, which may hold secrets
	ClientIP string `json:"client_ip"` // of the client that sent the request, not of a proxy in between
	TXID     string `json:"txid"`      // its name in logs; empty if it has none
}

// Requester knows the request that an [Arrival] is for.
type Requester interface {
	// Request describes the request. It may be called from any goroutine and at
	// any time, also when the turn is over.
	Request() Request
}

// Counter is an [Engine] that can say in an instant how many are in a queue. It is
// optional: the Caddy plugin refuses a request of a full queue before it reads its
// body if the engine is a Counter, and else only when the request asks for its turn.
type Counter interface {
	// Count returns how many are inside a queue, and how many wait. It asks
	// nobody else and never waits for others: there may be more than it knows
	// of, but those it counts as waiting are in the way of an arrival now.
	Count(queue string) (inside, waiting int)
}
