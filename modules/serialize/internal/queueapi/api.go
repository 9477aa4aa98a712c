// Package queueapi is what the admin API and its client, the commands, have in common.
package queueapi

import (
	"errors"
	"slices"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Path is the path of the admin API.
const Path = "/serialize/queues"

// The actions of the admin API on a queue.
const (
	Pause  = "pause"
	Resume = "resume"
)

// ErrNoQueue means that there is no such queue.
var ErrNoQueue = errors.New("no such queue")

// Queue is a queue, or what keeps it from being read.
type Queue struct {
	serializer.QueueState

	// Why the queue could not be read. Its numbers then say nothing.
	Error string `json:"error,omitempty"`
}

// Ticket finds a ticket of the queue by its number.
func (q *Queue) Ticket(token string) (serializer.TicketState, bool) {
	i := slices.IndexFunc(q.Tickets, func(t serializer.TicketState) bool { return t.Token == token })
	if i < 0 {
		return serializer.TicketState{}, false
	}
	return q.Tickets[i], true
}
