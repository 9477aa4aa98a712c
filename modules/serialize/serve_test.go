package serialize

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
)

// Bug: a revocation did not reach an inner turn that began after it, if the client had
// hung up before.
func TestRevocationReachesALaterTurn(t *testing.T) {
	s := &Handler{OnDisconnect: onDisconnectFinish}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	outer := &visit{handler: s}
	inner := &visit{handler: s, earlier: outer}
	outer.openContext(r)
	outer.cancel(context.Canceled)
	outer.response.Init(httptest.NewRecorder(), r, response.Options{})
	outer.state.Store(visitInside)
	outer.revoke(errHoldTimeout)
	inner.openContext(r)
	if cause := context.Cause(inner.inside); !errors.Is(cause, errHoldTimeout) {
		t.Errorf("the inner turn goes on: %v", cause)
	}
}
