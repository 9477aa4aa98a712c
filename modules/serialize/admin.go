package serialize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// AdminAPI shows the queues of this process in Caddy's admin API, evicts tickets from
// them, and pauses them.
//
//	GET    /serialize/queues                  every queue of this process; one that cannot be read has an `error`
//	GET    /serialize/queues/<queue>          one
//	DELETE /serialize/queues/<queue>/<token>  evicts one ticket
//	POST   /serialize/queues/<queue>/pause    pauses it; `?for=10m` says how long, `?for=0` until it is resumed
//	POST   /serialize/queues/<queue>/resume   ends the pause
//
// A queue is named by its path, a slash and its prefix, URL-escaped as one segment:
// `%2Ftmp%2Fserializer_`.
//
// Nobody enters a paused queue. Requests inside finish, all others keep their places.
// A pause applies to all processes of the directory. A prefix that ends in * means all
// queues whose names begin so.
//
// The request of a waiting ticket is refused at once, with the reason `evicted`. A
// request inside is cancelled, and the next one enters when it has returned.
type AdminAPI struct{}

// CaddyModule returns the Caddy module information.
func (AdminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.serialize",
		New: func() caddy.Module { return new(AdminAPI) },
	}
}

// Routes implements [caddy.AdminRouter].
func (AdminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: queueapi.Path, Handler: caddy.AdminHandlerFunc(serveQueues)},
		{Pattern: queueapi.Path + "/", Handler: caddy.AdminHandlerFunc(serveQueue)},
	}
}

// serveQueues answers with all queues. A queue that cannot be read has an error
// instead, since one failing directory must not hide the others.
func serveQueues(w http.ResponseWriter, r *http.Request) error {
	if err := allow(w, r, http.MethodGet, http.MethodHead); err != nil {
		return err
	}
	return writeJSON(w, allQueues(r.Context()))
}

// serveQueue answers with one queue, evicts a ticket from it, or pauses it.
func serveQueue(w http.ResponseWriter, r *http.Request) error {
	queue, token, err := splitQueuePath(r.URL)
	if err != nil {
		return err
	}
	if token == "" {
		if err := allow(w, r, http.MethodGet, http.MethodHead); err != nil {
			return err
		}
		return serveOne(w, r, queue)
	}
	if isAction(token) {
		if err := allow(w, r, http.MethodPost); err != nil {
			return err
		}
		return servePause(w, r, queue, token)
	}
	if err := allow(w, r, http.MethodDelete); err != nil {
		return err
	}
	return serveEviction(w, r, queue, token)
}

// splitQueuePath returns the queue of a URL, and the token or the action, if any. It reads the
// escaped path, where a slash in a queue's name differs from one between segments.
func splitQueuePath(u *url.URL) (queue, token string, err error) {
	segments := strings.Split(strings.TrimPrefix(u.EscapedPath(), queueapi.Path+"/"), "/")
	if len(segments) > 2 {
		return "", "", adminError(http.StatusNotFound, fmt.Errorf(
			"%s: expected %s/<queue> or %s/<queue>/<token>; the queue is its path, a slash and its prefix, URL-escaped as one segment, such as %s",
			u.Path, queueapi.Path, queueapi.Path, url.PathEscape("/tmp/"+defaultPrefix)))
	}
	for i, segment := range segments {
		if segments[i], err = url.PathUnescape(segment); err != nil {
			return "", "", adminError(http.StatusBadRequest, fmt.Errorf("unescaping %q: %w", segment, err))
		}
	}
	if segments[0] == "" {
		return "", "", adminError(http.StatusNotFound, fmt.Errorf("no queue is named; %s lists them", queueapi.Path))
	}
	if len(segments) == 1 {
		return segments[0], "", nil
	}
	if segments[1] == "" {
		return "", "", adminError(http.StatusBadRequest, errors.New("no token is named behind the queue"))
	}
	return segments[0], segments[1], nil
}

func serveOne(w http.ResponseWriter, r *http.Request, queue string) error {
	found, err := findQueue(r.Context(), queue)
	if err != nil {
		return err
	}
	return writeJSON(w, found.QueueState)
}

// serveEviction evicts a ticket and answers with its last state.
func serveEviction(w http.ResponseWriter, r *http.Request, queue, token string) error {
	ticket, err := evictTicket(r.Context(), queue, token)
	if err != nil {
		return err
	}
	return writeJSON(w, ticket)
}

// evictTicket evicts a ticket and returns its last state. The error is one of the
// admin API.
func evictTicket(ctx context.Context, queue, token string) (ticket serializer.TicketState, err error) {
	number, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return ticket, adminError(http.StatusBadRequest, fmt.Errorf("token %q: expected the number of a ticket", token))
	}
	found, err := findQueue(ctx, queue)
	if err != nil {
		return ticket, err
	}
	ticket, ok := found.Ticket(strconv.FormatUint(number, 10))
	if !ok {
		return ticket, adminError(http.StatusNotFound, fmt.Errorf("queue %s has no ticket %d", queue, number))
	}
	err = found.evict(ctx, number)
	switch {
	case errors.Is(err, serializer.ErrNoTicket): // it has left meanwhile
		return ticket, adminError(http.StatusNotFound, err)
	case err != nil:
		return ticket, adminError(http.StatusInternalServerError, err)
	}
	return ticket, nil
}

// findQueue finds a queue by its path, a slash and its prefix. The error is one of the
// admin API.
func findQueue(ctx context.Context, queue string) (listedQueue, error) {
	var failed error
	for _, found := range allQueues(ctx) {
		switch {
		case found.failure != nil:
			failed = errors.Join(failed, found.failure)
		case found.Path+"/"+found.Prefix == queue:
			return found, nil
		}
	}
	if failed != nil {
		return listedQueue{}, adminError(http.StatusInternalServerError, fmt.Errorf("looking for queue %s: %w", queue, failed))
	}
	return listedQueue{}, adminError(http.StatusNotFound, fmt.Errorf(
		"this process has no queue %s; %s lists those it has", queue, queueapi.Path))
}

// allow refuses all methods except the given ones.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) error {
	if slices.Contains(methods, r.Method) {
		return nil
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return adminError(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed here; expected %s", r.Method, strings.Join(methods, " or ")))
}

func adminError(status int, err error) error { return caddy.APIError{HTTPStatus: status, Err: err} }

func writeJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		return adminError(http.StatusInternalServerError, fmt.Errorf("writing the answer: %w", err))
	}
	return nil
}

// Interface guards
var _ caddy.AdminRouter = AdminAPI{}
