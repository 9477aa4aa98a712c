package serialize

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// revocation is the cause of a hold that its queue has ended, not its client. The
// next handlers must take it for an ordinary cancellation. Otherwise reverse_proxy
// would count a failure of the upstream, and try again while it holds the turn.
type revocation struct{ error }

// Is makes a revocation equal to [context.Canceled].
func (revocation) Is(target error) bool { return target == context.Canceled }

// Unwrap returns why the queue has ended the hold.
func (r revocation) Unwrap() error { return r.error }

func isRevocation(cause error) bool {
	_, ok := errors.AsType[revocation](cause)
	return ok
}

var errHoldTimeout = errors.New("inside for longer than hold_timeout")

// revoke takes the turn back: it cancels what runs in it and ends what blocks on
// the client. It does the same with the turns that the request has taken inside
// this one.
func (v *visit) revoke(cause error) {
	v.cancel(revocation{cause})
	v.mu.Lock()
	v.revoked, v.revokedFor = true, cause
	w, inner := v.current, v.inner
	v.mu.Unlock()
	if w != nil {
		w.revoke()
	}
	if inner != nil {
		inner.revoke(cause)
	}
}

// nest notes a visit to another queue that begins inside this one.
func (v *visit) nest(inner *visit) {
	v.mu.Lock()
	v.inner = inner
	revoked, cause := v.revoked, v.revokedFor // the context may have ended for another reason
	v.mu.Unlock()
	if revoked {
		inner.revoke(cause)
	}
}

// revokeDry revokes the turn of a request in a dry run only if somebody evicts it.
func (v *visit) revokeDry(cause error) {
	if errors.Is(cause, serializer.ErrEvicted) {
		v.revoke(cause)
	}
}

// explain replaces the error of a handler whose turn was revoked by the cause.
func (v *visit) explain(w *turnWriter, err error) error {
	if err == nil && !w.unanswered {
		return nil
	}
	revoked, ok := errors.AsType[revocation](context.Cause(v.ctx))
	switch {
	case !ok:
		return err
	case errors.Is(revoked, errHoldTimeout):
		return caddyhttp.Error(http.StatusGatewayTimeout, revoked.error)
	}
	return caddyhttp.Error(http.StatusServiceUnavailable, revoked.error)
}
