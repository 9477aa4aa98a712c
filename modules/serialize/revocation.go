package serialize

import (
	"errors"
	"net/http"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
	"github.com/orderly-http/caddy-orderly/serializer"
)

var errHoldTimeout = errors.New("inside for longer than hold_timeout")

// revoke takes the turn back: it cancels what runs in it and ends what blocks on
// the client. It does the same with the turns that the request has taken inside
// this one.
func (v *visit) revoke(cause error) {
	v.cancel(response.NewRevocation(cause, revocationStatus(cause)))
	v.mu.Lock()
	v.revoked, v.revokedFor = true, cause
	w, inner := v.current, v.inner
	v.mu.Unlock()
	if w != nil {
		w.Revoke()
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

// revocationStatus is the status of the answer to a request whose turn was revoked.
func revocationStatus(cause error) int {
	if errors.Is(cause, errHoldTimeout) {
		return http.StatusGatewayTimeout
	}
	return http.StatusServiceUnavailable
}
