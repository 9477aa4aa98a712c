package serialize

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
)

// AdminAPI shows the queues of this process in Caddy's admin API, evicts tickets from
// them, and pauses them.
//
//	GET    /serialize/queues                  every queue of this process, or those of a `?queue=`
//	GET    /serialize/queues/<queue>          one
//	DELETE /serialize/queues/<queue>/<token>  evicts one ticket
//	POST   /serialize/queues/<queue>/pause    pauses it for 10m; `?for=1h` says how long, `?for=0` until it is resumed, `?until=` an RFC 3339 moment its end
//	POST   /serialize/queues/<queue>/resume   ends the pause
//
// A queue is named by its path, a slash and its prefix, URL-escaped as one segment:
// `%2Ftmp%2Fserializer_`. A prefix that ends in * means all queues whose names begin so.
//
// Nobody enters a paused queue, in any process. Requests inside finish, all others keep
// their places. The request of an evicted ticket is refused with the reason `evicted`, or
// cancelled if it is inside. The answer is the ticket as it was, and a `result`. If the
// ticket's process does not answer, the status is 504; it obeys once it continues.
type AdminAPI struct{}

// CaddyModule returns the Caddy module information.
func (AdminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.serialize", New: func() caddy.Module { return new(AdminAPI) }}
}

// Routes implements [caddy.AdminRouter].
func (AdminAPI) Routes() []caddy.AdminRoute {
	const one = queueview.Path + "/{queue}"
	return []caddy.AdminRoute{
		{Pattern: "GET " + queueview.Path, Handler: caddy.AdminHandlerFunc(serveQueues)},
		{Pattern: "GET " + one, Handler: caddy.AdminHandlerFunc(serveQueue)},
		{Pattern: "DELETE " + one + "/{token}", Handler: serveAction("evict")},
		{Pattern: "POST " + one + "/pause", Handler: serveAction("pause")},
		{Pattern: "POST " + one + "/resume", Handler: serveAction("resume")},
	}
}

// serveQueues answers with all queues. A queue that cannot be read has an error
// instead, since one failing directory must not hide the others.
func serveQueues(w http.ResponseWriter, r *http.Request) error {
	names := namesOf(cmp.Or(r.URL.Query().Get("queue"), "*"))
	return writeJSON(w, slices.DeleteFunc(queuesOf(r.Context(), names), func(q *listedQueue) bool { return !q.isNamed(names) }), nil)
}

func serveQueue(w http.ResponseWriter, r *http.Request) error {
	q, _, err := findQueue(r.Context(), namesOf(r.PathValue("queue")), r.PathValue("queue"), "")
	return writeJSON(w, q, err)
}

// serveAction performs an action. A parameter that it does not have, or has twice, may be
// meant for something else.
func serveAction(name string) caddy.AdminHandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		query, err := url.ParseQuery(r.URL.RawQuery)
		fits := err == nil
		for parameter, values := range query {
			fits = fits && len(values) == 1 && slices.Contains(actions[name].parameters, parameter)
		}
		if !fits {
			return adminError(http.StatusBadRequest, fmt.Errorf("%s: %s has only the parameters %s, each once", r.URL.RawQuery, name, actions[name].parameters))
		}
		if token := r.PathValue("token"); token != "" {
			query.Set("token", token)
		}
		answer, err := perform(r.Context(), caddy.Log().Named("admin.api.serialize"), name, r.PathValue("queue"), query,
			zap.String("remote_addr", r.RemoteAddr), zap.String("user_agent", r.UserAgent()))
		return writeJSON(w, answer, err)
	}
}

// writeJSON answers with a value, unless there is an error.
func writeJSON(w http.ResponseWriter, value any, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return command.WriteJSON(w, "", value) // an error: its client has gone
}

// Interface guards
var _ caddy.AdminRouter = AdminAPI{}
