package serialize

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
)

// AdminAPI shows the queues of this process in Caddy's admin API, evicts tickets from
// them, and pauses them.
//
//	GET    /serialize/queues                  every queue of this process; one that cannot be read has an `error`
//	GET    /serialize/queues/<queue>          one
//	DELETE /serialize/queues/<queue>/<token>  evicts one ticket; `?careful` leaves one that is inside alone, with 409
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
// request inside is cancelled, and the next one enters when it has returned. The answer is
// the ticket as it was, and a `result`. If the ticket's process does not answer, the status
// is 504.
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
	const one = queueapi.Path + "/{queue}"
	return []caddy.AdminRoute{
		{Pattern: "GET " + queueapi.Path, Handler: caddy.AdminHandlerFunc(serveQueues)},
		{Pattern: "GET " + one, Handler: caddy.AdminHandlerFunc(serveQueue)},
		{Pattern: "DELETE " + one + "/{token}", Handler: caddy.AdminHandlerFunc(serveEviction)},
		{Pattern: "POST " + one + "/pause", Handler: caddy.AdminHandlerFunc(servePause)},
		{Pattern: "POST " + one + "/resume", Handler: caddy.AdminHandlerFunc(serveResume)},
	}
}

// serveQueues answers with all queues. A queue that cannot be read has an error
// instead, since one failing directory must not hide the others.
func serveQueues(w http.ResponseWriter, r *http.Request) error {
	return writeJSON(w, allQueues(r.Context()), nil)
}

func serveQueue(w http.ResponseWriter, r *http.Request) error {
	queue := r.PathValue("queue")
	q, err := findQueue(r.Context(), "queue "+queue, func(q *listedQueue) bool { return q.Path+"/"+q.Prefix == queue })
	return writeJSON(w, q, err)
}

func serveEviction(w http.ResponseWriter, r *http.Request) error {
	evicted, err := evictTicket(r.Context(), r.PathValue("queue"), r.PathValue("token"), r.URL.Query().Has("careful"))
	return writeJSON(w, evicted, err)
}

func servePause(w http.ResponseWriter, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	lengths := query["for"]
	delete(query, "for")
	if err != nil || len(query) > 0 || len(lengths) > 1 {
		return adminError(http.StatusBadRequest, fmt.Errorf("%s: expected no parameter but one duration, as in for=10m", r.URL.RawQuery))
	}
	answer, err := changePause(r.Context(), r.PathValue("queue"), queueapi.Pause, strings.Join(lengths, ""))
	return writeJSON(w, answer, err)
}

func serveResume(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery != "" {
		return adminError(http.StatusBadRequest, fmt.Errorf("%s: resume takes no parameter", r.URL.RawQuery))
	}
	answer, err := changePause(r.Context(), r.PathValue("queue"), queueapi.Resume, "")
	return writeJSON(w, answer, err)
}

// writeJSON answers with a value, unless there is an error.
func writeJSON(w http.ResponseWriter, value any, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		return adminError(http.StatusInternalServerError, fmt.Errorf("writing the answer: %w", err))
	}
	return nil
}

// Interface guards
var _ caddy.AdminRouter = AdminAPI{}
