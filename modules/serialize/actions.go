package serialize

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Here is what the admin API and the controls of the status page do to queues. All errors
// are those of the admin API, with a status.

func adminError(status int, err error) error { return caddy.APIError{HTTPStatus: status, Err: err} }

// findQueue finds a queue that is as wanted. what names it in errors.
func findQueue(ctx context.Context, what string, wanted func(*listedQueue) bool) (*listedQueue, error) {
	failed := ""
	for _, q := range allQueues(ctx) {
		switch {
		case q.Error != "":
			failed = q.Error
		case wanted(q):
			return q, nil
		}
	}
	if failed != "" {
		return nil, adminError(http.StatusInternalServerError, fmt.Errorf("looking for %s: %s", what, failed))
	}
	return nil, adminError(http.StatusNotFound, fmt.Errorf("this process has no %s; %s lists what it has", what, queueapi.Path))
}

// findTicket finds a ticket in a queue, or in several of one name.
func findTicket(ctx context.Context, queue, token string) (q *listedQueue, t serializer.TicketState, err error) {
	q, err = findQueue(ctx, fmt.Sprintf("ticket %s in queue %s", token, queue), func(q *listedQueue) (there bool) {
		t, there = q.ticket(token)
		name, _ := q.engines[0].split(queue)
		return there && queueapi.Matches(name, q.Prefix)
	})
	return q, t, err
}

const (
	// evictPatience is how long the owner of a ticket may take to evict it, and its
	// request to return. Owners look ten times a second.
	evictPatience = 3 * time.Second
	evictPoll     = 100 * time.Millisecond
)

// evictTicket evicts a ticket, and says what became of it. With careful, it leaves one that
// is inside alone.
func evictTicket(ctx context.Context, queue, token string, careful bool) (e queueapi.Eviction, err error) {
	number, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return e, adminError(http.StatusBadRequest, fmt.Errorf("token %q: expected the number of a ticket", token))
	}
	q, t, err := findTicket(ctx, queue, strconv.FormatUint(number, 10))
	switch {
	case err != nil:
		return e, err
	case careful && t.State == serializer.StateInside:
		return e, adminError(http.StatusConflict, fmt.Errorf("ticket %s is inside, for %s, in %s", t.Token, queueapi.RequestOf(t), t.Owner))
	}
	ctx, cancel := context.WithTimeout(ctx, evictPatience)
	defer cancel()
	for _, engine := range q.engines {
		if err = engine.Evict(ctx, q.Prefix, number); err == nil {
			break
		}
	}
	left := ""
	if err == nil {
		left = awaitEviction(ctx, queue, t.Token)
	}
	switch {
	case left == serializer.StateWaiting, errors.Is(err, context.DeadlineExceeded):
		return e, adminError(http.StatusGatewayTimeout, fmt.Errorf("the process of ticket %s, %s, does not answer; "+
			"it may be stopped: it evicts the ticket once it continues, and its end frees all its tickets", t.Token, t.Owner))
	case errors.Is(err, serializer.ErrNoTicket): // it has left meanwhile
		return e, adminError(http.StatusNotFound, err)
	case err != nil:
		return e, adminError(http.StatusInternalServerError, err)
	}
	return queueapi.Eviction{TicketState: t, Result: evictionText(t.State, left)}, nil
}

// awaitEviction returns when a ticket has left its queue, or when ctx is done: then with
// the state that the ticket has still.
func awaitEviction(ctx context.Context, queue, token string) (state string) {
	for {
		_, t, err := findTicket(ctx, queue, token)
		switch {
		case ctx.Err() != nil:
			return state
		case err != nil:
			return ""
		}
		state = t.State
		select {
		case <-ctx.Done():
		case <-time.After(evictPoll):
		}
	}
}

// evictionText says what became of a ticket that was waiting or inside. left is the state
// that it has still, or "".
func evictionText(was, left string) string {
	switch {
	case left != "":
		return "its turn is revoked and its request cancelled, but the turn ends only when its handlers return, which they have not done yet; " +
			queueapi.FastCGIText
	case was == serializer.StateInside:
		return "evicted; its request was cancelled and has returned, so the next may enter"
	}
	return "evicted; its request is refused"
}

// changePause pauses queues or resumes them. length is the text of a duration, or "" for
// the default. The answer is the state of a queue that was named with its path, else a
// list of states.
func changePause(ctx context.Context, queue, action, length string) (answer any, err error) {
	until, err := pauseEnd(length)
	if err != nil {
		return nil, adminError(http.StatusBadRequest, err)
	}
	missing := adminError(http.StatusNotFound, fmt.Errorf(
		"no such queue: %s; %s lists those of this process, and a prefix that ends in * stands for all queues that begin so", queue, queueapi.Path))
	if queueapi.Placeholder.MatchString(queue) {
		return nil, missing
	}
	engines := registered.openEngines()
	byPath := slices.ContainsFunc(engines, func(e *sharedEngine) bool {
		_, at := e.split(queue)
		return at
	})
	var spaces []string // those that are done: engines of one space have the same pauses
	var states []serializer.QueueState
	for _, e := range engines {
		name, at := e.split(queue)
		if at != byPath || slices.Contains(spaces, e.space) || !e.mayHave(ctx, name) {
			continue
		}
		spaces = append(spaces, e.space)
		if action == queueapi.Pause {
			err = e.Pause(ctx, name, until)
		} else {
			err = e.Resume(ctx, name)
		}
		if err != nil {
			return nil, adminError(http.StatusInternalServerError, fmt.Errorf("%s of queue %q in %s: %w", action, name, e.Path(), err))
		}
		states = append(states, e.stateOf(ctx, name))
	}
	switch {
	case len(states) == 0:
		return nil, missing
	case byPath:
		return states[0], nil
	}
	return states, nil
}

const (
	defaultPause  = 10 * time.Minute
	shortestPause = 10 * time.Millisecond // long enough for all processes to learn of it
)

// pauseEnd is the end of a pause of some length; zero for 0, which is until it is resumed.
func pauseEnd(length string) (until time.Time, err error) {
	d := defaultPause
	if length != "" {
		if d, err = caddy.ParseDuration(length); err != nil || d != 0 && d < shortestPause {
			return until, fmt.Errorf("for %q: expected a duration such as 10m, or 0 until it is resumed", length)
		}
	}
	if d == 0 {
		return until, nil
	}
	return time.Now().Add(d), nil
}

// split splits the name of a queue, as people write it, from the engine's path. at tells
// whether the path is there. Both may have slashes.
func (e *sharedEngine) split(queue string) (name string, at bool) {
	for i, c := range queue {
		if c == '/' && e.isAt(queue[:i]) {
			return queueapi.Name(queue[i+1:]), true
		}
	}
	return queueapi.Name(queue), false
}

// mayHave reports whether the engine has a queue that a name stands for, or a handler may
// have one: nobody may have come to it yet.
func (e *sharedEngine) mayHave(ctx context.Context, name string) bool {
	start, all := strings.CutSuffix(name, "*")
	handlers := registered.membersWhere(func(m *member) bool {
		return m.engine == e && m.many && (m.covers(start) || all && strings.HasPrefix(m.queue, start))
	})
	return len(handlers) > 0 || slices.ContainsFunc(e.listQueues(ctx), func(q *listedQueue) bool { return queueapi.Matches(name, q.Prefix) })
}

// stateOf lists one queue. A name with a * that is not paused is in no list.
func (e *sharedEngine) stateOf(ctx context.Context, name string) serializer.QueueState {
	for _, q := range e.listQueues(ctx) {
		if q.Prefix == name {
			return q.QueueState
		}
	}
	return serializer.QueueState{Path: e.Path(), Prefix: name, Tickets: []serializer.TicketState{}}
}
