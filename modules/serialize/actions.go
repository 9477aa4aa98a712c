package serialize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// action is what the admin API and the controls of the status page do to a queue. Its
// answer becomes JSON. All errors are those of the admin API, with a status.
type action struct {
	parameters []string // their names
	do         func(ctx context.Context, queue string, query url.Values) (answer any, err error)
}

var actions = map[string]action{
	"evict":  {[]string{"token"}, evict},
	"pause":  {[]string{"for", "until"}, pause},
	"resume": {nil, resume},
}

// perform performs an action. The log says who asked for it and what was answered, such as
// the end of a pause.
func perform(ctx context.Context, log *zap.Logger, name, queue string, query url.Values, who ...zap.Field) (answer any, err error) {
	ctx, cancel := context.WithTimeout(ctx, actionPatience)
	defer cancel()
	answer, err = actions[name].do(ctx, queue, query)
	if err == nil {
		if token := query.Get("token"); token != "" {
			who = append(who, zap.String("token", token))
		}
		log.Warn("operator: "+name, append(who, zap.String("queue", queue), zap.Any("answer", answer))...)
	}
	return answer, err
}

func adminError(status int, err error) error { return caddy.APIError{HTTPStatus: status, Err: err} }

// namesOf finds the engines that a queue may be in, and its name there. People name a queue
// by its prefix, or by its path, a slash and its prefix: then only engines with this path
// count. Path and prefix may have slashes.
func namesOf(queue string) map[*engines.Shared]string {
	all, byPath := make(map[*engines.Shared]string), make(map[*engines.Shared]string)
	for _, e := range engines.All() {
		all[e] = queueview.Name(queue)
		for _, path := range []string{e.Path(), e.Directory, engines.RealPath(e.Directory)} {
			if prefix, ok := strings.CutPrefix(queue, path+"/"); ok {
				byPath[e] = queueview.Name(prefix)
			}
		}
	}
	if len(byPath) > 0 {
		return byPath
	}
	return all
}

// isNamed reports whether the queue has one of the names. One without a name stands for all
// of an engine that cannot be read.
func (q *listedQueue) isNamed(names map[*engines.Shared]string) bool {
	name, ok := names[q.engine]
	return ok && (q.Prefix == "" || serializer.Matches(name, q.Prefix))
}

// findQueue finds the queue of a name, or with a token, the one that has the ticket.
func findQueue(ctx context.Context, names map[*engines.Shared]string, queue, token string) (*listedQueue, *serializer.TicketState, error) {
	what, failed := "queue "+queue, ""
	if token != "" {
		what = "ticket " + token + " in " + what
	}
	for _, q := range queuesOf(ctx, names) {
		t := q.ticket(token)
		switch {
		case q.Error != "":
			failed = q.Error
		case q.isNamed(names) && (token == "" || t != nil):
			return q, t, nil
		}
	}
	if failed != "" {
		return nil, nil, adminError(http.StatusInternalServerError, fmt.Errorf("looking for %s: %s", what, failed))
	}
	return nil, nil, adminError(http.StatusNotFound, fmt.Errorf("this process has no %s; %s lists what it has", what, queueview.Path))
}

// actionPatience is how long an engine may take, the owner of a ticket to evict it, and its
// request to return. Owners check ten times a second, and so does [awaitEviction].
const actionPatience = 3 * time.Second

// evict evicts a ticket, and says what became of it.
func evict(ctx context.Context, queue string, query url.Values) (answer any, err error) {
	number, err := strconv.ParseUint(query.Get("token"), 10, 64)
	if err != nil {
		return nil, adminError(http.StatusBadRequest, fmt.Errorf("token %q: expected the number of a ticket", query.Get("token")))
	}
	q, t, err := findQueue(ctx, namesOf(queue), queue, strconv.FormatUint(number, 10))
	if err != nil {
		return nil, err
	}
	left := ""
	if err = q.engine.Evict(ctx, q.Prefix, number); err == nil {
		left = awaitEviction(ctx, q, t)
	}
	result := "evicted; its request is refused"
	switch {
	case left == serializer.StateWaiting, errors.Is(err, context.DeadlineExceeded):
		return nil, adminError(http.StatusGatewayTimeout, fmt.Errorf("the process of ticket %s, %s, does not answer; "+
			"it may be stopped: it evicts the ticket once it continues, and its end frees all its tickets", t.Token, t.Owner))
	case errors.Is(err, serializer.ErrNoTicket): // it has left meanwhile
		return nil, adminError(http.StatusNotFound, err)
	case err != nil:
		return nil, adminError(http.StatusInternalServerError, err)
	case t.Alive != nil && !*t.Alive: // of another program, or of a dead process
		result = "its file was removed; the program that made it may still be at work"
	case left == serializer.StateInside:
		result = "its turn is revoked and its request cancelled, but the turn ends only when its handlers return, which they have not done yet; " +
			queueview.FastCGIText
	case t.State == serializer.StateInside:
		result = "evicted; its turn has ended, so the next may enter"
	}
	return queueview.Eviction{TicketState: *t, Result: result}, nil
}

// awaitEviction returns when a ticket has left its queue, or when ctx is done: then with the
// state that the ticket had last. It asks one engine: others may fail, even of the same path.
func awaitEviction(ctx context.Context, q *listedQueue, t *serializer.TicketState) (state string) {
	for state = t.State; ctx.Err() == nil; time.Sleep(actionPatience / 30) {
		_, now, err := findQueue(ctx, map[*engines.Shared]string{q.engine: q.Prefix}, q.Prefix, t.Token)
		if err == nil {
			state = now.State
		} else if missing, ok := errors.AsType[caddy.APIError](err); ok && missing.HTTPStatus == http.StatusNotFound {
			return ""
		}
	}
	return state
}

// shortestPause is long enough for all processes to learn of it.
const shortestPause = 10 * time.Millisecond

// pause pauses queues for a while; 0 is until they are resumed.
func pause(ctx context.Context, queue string, query url.Values) (answer any, err error) {
	until, err := pauseEnd(query)
	if err != nil {
		return nil, adminError(http.StatusBadRequest, err)
	}
	return change(ctx, queue, func(e *engines.Shared, name string) error { return e.Pause(ctx, name, until) })
}

// pauseEnd is when a pause is to end; zero means when it is resumed.
func pauseEnd(query url.Values) (until time.Time, err error) {
	if text := strings.Replace(query.Get("until"), " ", "+", 1); text != "" { // people seldom escape the plus of a time zone
		if until, err = time.Parse(time.RFC3339, text); err != nil || time.Until(until) < shortestPause || query.Has("for") {
			return until, fmt.Errorf("until %q: expected a moment to come, such as 2026-12-24T10:00:00+01:00, and no for beside it", text)
		}
		return until, nil
	}
	text := cmp.Or(query.Get("for"), queueview.DefaultPause)
	length, err := caddy.ParseDuration(text)
	if err != nil || length < shortestPause && (length != 0 || strings.ContainsAny(text, "123456789")) { // 0.1ns is 0, too
		return until, fmt.Errorf("for %q: expected a duration such as 10m, or 0 until it is resumed", text)
	}
	if length > 0 {
		until = time.Now().Add(length)
	}
	return until, nil
}

// resume ends the pauses of queues.
func resume(ctx context.Context, queue string, _ url.Values) (answer any, err error) {
	return change(ctx, queue, func(e *engines.Shared, name string) error { return e.Resume(ctx, name) })
}

// change pauses or resumes queues. The answer says of each whether it is paused now.
func change(ctx context.Context, queue string, do func(e *engines.Shared, name string) error) (answer any, err error) {
	names := namesOf(queue)
	listed := sync.OnceValue(func() []*listedQueue { return queuesOf(ctx, names) })
	found := slices.DeleteFunc(engines.All(), func(e *engines.Shared) bool { return !mayHave(e, names[e], listed) })
	if len(found) == 0 {
		return nil, adminError(http.StatusNotFound, fmt.Errorf(
			"no such queue: %s; %s lists those of this process, and a prefix that ends in * stands for all queues that begin so", queue, queueview.Path))
	}
	failed := make(chan error, len(found))
	changed := engines.AskAll(found, func(e *engines.Shared) queueview.Paused {
		if err := do(e, names[e]); err != nil {
			failed <- fmt.Errorf("queue %q in %s: %w", names[e], e.Path(), err)
		}
		return queueview.Paused{Path: e.Path(), Prefix: names[e], PausedUntil: e.PausedUntil(names[e])}
	})
	if len(failed) > 0 {
		return nil, adminError(http.StatusInternalServerError, <-failed)
	}
	return changed, nil
}

// mayHave reports whether the engine has a queue that a name stands for, or a handler may
// have one: nobody may have come to it yet. What looks like a placeholder in a name came from
// a client, so that queue is listed.
func mayHave(e *engines.Shared, name string, listed func() []*listedQueue) bool {
	isListed := func(q *listedQueue) bool { return q.engine.Space == e.Space && serializer.Matches(name, q.Prefix) }
	mayCome := !queueview.Placeholder.MatchString(name) && has(e, name)
	return name != "" && (mayCome || slices.ContainsFunc(listed(), isListed))
}
