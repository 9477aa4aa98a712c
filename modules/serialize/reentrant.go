package serialize

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// visitsVar is the variable of a request that holds its visits to queues, the
// youngest first.
const visitsVar = "orderly.serialize"

// join returns the request's earlier visit to the same queue, where that decides
// what becomes of this one: it is still inside and would wait for itself, or it
// never had its turn. Else it remembers that the request comes to the queue now;
// so does one whose turn has ended.
func (v *visit) join(vars map[string]any) *visit {
	youngest, _ := vars[visitsVar].(*visit)
	for earlier := youngest; earlier != nil; earlier = earlier.next {
		if earlier.queue != v.queue {
			continue
		}
		if earlier.failure != nil && earlier.handler.engine.directory.same(v.handler.engine.directory) {
			return earlier // whatever its engine
		}
		if earlier.space == v.space && (earlier.failure != nil || earlier.use()) {
			return earlier
		}
	}
	v.next = youngest
	vars[visitsVar] = v
	return nil
}

// fail remembers that the request does not get its turn, and why.
func (v *visit) fail(failure caddyhttp.HandlerError) error {
	v.failure = &failure
	return failure
}

// again serves a request that comes to the queue of a visit for another time. It
// passes while it holds the turn, which join has taken part in. Without one it is answered as before: the
// error routes must not let in whom the queue has refused.
func (v *visit) again(s *Handler, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if v.failure != nil {
		return s.answerRefusal(w, v)
	}
	defer v.release()
	if v.isRunning() {
		return next.ServeHTTP(w, r)
	}
	return v.resume(w, r, next)
}
