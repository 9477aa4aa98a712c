package serialize

import (
	"context"
	"errors"
	"testing"
)

// Bug: a revocation did not reach an inner turn that began after it, if the client had
// hung up before.
func TestRevocationReachesALaterTurn(t *testing.T) {
	outer, inner := new(visit), new(visit)
	outer.ctx, outer.cancel = context.WithCancelCause(t.Context())
	inner.ctx, inner.cancel = context.WithCancelCause(t.Context())
	outer.state = visitInside
	outer.cancel(context.Canceled)
	outer.revoke(errHoldTimeout)
	outer.nest(inner)
	if cause := context.Cause(inner.ctx); !errors.Is(cause, errHoldTimeout) {
		t.Errorf("the inner turn goes on: %v", cause)
	}
}
