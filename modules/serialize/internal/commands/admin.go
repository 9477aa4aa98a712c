package commands

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// adminSource is a running Caddy, asked through its admin API.
type adminSource struct {
	address string
	path    string // of the directory whose queues are wanted; empty means all
}

var (
	errInside    = errors.New("its request is inside")
	errNotObeyed = errors.New("its owner does not answer")
)

// eviction is what became of a ticket.
type eviction struct {
	ticket   serializer.TicketState // as it was before
	returned bool                   // it is gone
}

const (
	// evictPatience is how long the owner of a waiting ticket may take to give
	// it up. It checks ten times a second.
	evictPatience = 3 * time.Second

	adminPoll = 50 * time.Millisecond
)

func (a *adminSource) String() string { return "the Caddy at " + a.address }

// queues lists all queues. Those that cannot be read are in an [*unreadError].
func (a *adminSource) queues(ctx context.Context) ([]serializer.QueueState, error) {
	var listed []queueapi.Queue
	err := a.ask(ctx, http.MethodGet, queueapi.Path, &listed)
	if isNotFound(err) {
		return nil, fmt.Errorf("%s was built without serialize, so it has no queues; --address names the admin API of another one", a)
	}
	if err != nil {
		return nil, err
	}
	var queues []serializer.QueueState
	var failed []error
	for _, q := range listed {
		if a.path != "" && q.Path != a.path {
			continue
		}
		if q.Error != "" {
			failed = append(failed, fmt.Errorf("%s cannot read queue %s in %s: %s", a, command.Printable(q.Prefix), command.Printable(q.Path), command.Printable(q.Error)))
			continue
		}
		for i := range q.Tickets {
			t := &q.Tickets[i]
			t.State, t.Token = command.Printable(t.State), command.Printable(t.Token)
			if t.Alive == nil && t.Request != nil { // this server serves it, whatever its engine knows
				t.Alive = new(true)
			}
		}
		queues = append(queues, q.QueueState)
	}
	if len(failed) > 0 {
		return queues, &unreadError{errors.Join(failed...)}
	}
	return queues, nil
}

// unreadError means that some queues could not be read; the others are listed
// beside it.
type unreadError struct{ error }

func (e *unreadError) Unwrap() error { return e.error }

// isUnread reports whether an error leaves the other queues as they are.
func isUnread(err error) bool {
	_, ok := errors.AsType[*unreadError](err)
	return ok
}

// evict takes a ticket out of the queue of a prefix, and waits until it is gone or ctx is
// done. A ticket that is inside is left alone, with errInside, unless inside says so.
func (a *adminSource) evict(ctx context.Context, prefix string, token uint64, inside bool) (eviction, error) {
	queues, err := a.queues(ctx)
	if err != nil && !isUnread(err) {
		return eviction{}, err
	}
	queue, ticket, ok := findTicket(queues, prefix, token)
	evicted := eviction{ticket: ticket}
	switch {
	case !ok && err != nil:
		return evicted, err
	case !ok:
		return evicted, fmt.Errorf("evicting ticket %d from queue %q of %s: %w", token, prefix, a, serializer.ErrNoTicket)
	case ticket.State == serializer.StateInside && !inside:
		return evicted, fmt.Errorf("evicting ticket %d from queue %q of %s: %w", token, prefix, a, errInside)
	}
	path := queueapi.Path + "/" + url.PathEscape(queue)
	err = a.ask(ctx, http.MethodDelete, path+"/"+ticket.Token, nil)
	if isNotFound(err) {
		err = fmt.Errorf("evicting ticket %d from queue %q of %s: %w", token, prefix, a, serializer.ErrNoTicket)
	}
	if err != nil {
		return evicted, err
	}
	return a.awaitEviction(ctx, path, evicted)
}

// findTicket finds a ticket in the queues of a prefix. There may be several, in different
// directories. queue is its name in the admin API.
func findTicket(queues []serializer.QueueState, prefix string, token uint64) (queue string, ticket serializer.TicketState, ok bool) {
	text := strconv.FormatUint(token, 10)
	for _, q := range queues {
		if !prefixMatches(prefix, q.Prefix) {
			continue
		}
		i := slices.IndexFunc(q.Tickets, func(t serializer.TicketState) bool { return t.Token == text })
		if i >= 0 {
			return q.Path + "/" + q.Prefix, q.Tickets[i], true
		}
	}
	return "", serializer.TicketState{}, false
}

// awaitEviction returns when a ticket is gone, or when ctx is done. The owner of
// one that waits may be another process, which may not react.
func (a *adminSource) awaitEviction(ctx context.Context, path string, evicted eviction) (eviction, error) {
	ended := time.Now().Add(evictPatience)
	for {
		t, there, err := a.ticket(ctx, path, evicted.ticket.Token)
		switch {
		case ctx.Err() != nil:
			return evicted, nil //nolint:nilerr // time is up, which the caller sees by what is not returned
		case err != nil:
			return evicted, err
		case !there:
			evicted.returned = true
			return evicted, nil
		case t.State == serializer.StateWaiting && time.Now().After(ended):
			return evicted, fmt.Errorf("evicting ticket %s: %w: %s", t.Token, errNotObeyed, t.Owner)
		}
		select {
		case <-ctx.Done():
		case <-time.After(adminPoll):
		}
	}
}

// ticket finds a ticket in the queue at a path of the admin API.
func (a *adminSource) ticket(ctx context.Context, path, token string) (t serializer.TicketState, there bool, err error) {
	var queue serializer.QueueState
	err = a.ask(ctx, http.MethodGet, path, &queue)
	if isNotFound(err) {
		return t, false, nil // the queue ended with its last ticket
	}
	if err != nil {
		return t, false, err
	}
	t, there = (&queueapi.Queue{QueueState: queue}).Ticket(token)
	return t, there, nil
}

// pause pauses the queues of a prefix or resumes them, as action says. length is the text
// of a duration. The error is [queueapi.ErrNoQueue] if there are none.
func (a *adminSource) pause(ctx context.Context, prefix, action, length string) (states []serializer.QueueState, err error) {
	queue, answer := prefix, any(&states)
	if a.path != "" { // then the answer is one queue
		states = make([]serializer.QueueState, 1)
		queue, answer = a.path+"/"+prefix, &states[0]
	}
	path := queueapi.Path + "/" + url.PathEscape(queue) + "/" + action
	if action == queueapi.Pause {
		path += "?for=" + url.QueryEscape(length)
	}
	err = a.ask(ctx, http.MethodPost, path, answer)
	if isNotFound(err) {
		return nil, fmt.Errorf("%s: %w with the prefix %s", a, queueapi.ErrNoQueue, prefix)
	}
	return states, err
}
