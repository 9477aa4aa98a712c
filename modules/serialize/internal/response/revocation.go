package response

import (
	"context"
	"errors"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Revocation is the cause of a turn that its queue has ended, not its client. The next
// handlers must take it for an ordinary cancellation. Otherwise reverse_proxy would count
// a failure of the upstream, and try again while it holds the turn.
type Revocation struct {
	error      // why
	status int // for the client
}

// NewRevocation revokes a turn for a cause. A response that has not begun gets the status.
func NewRevocation(cause error, status int) Revocation { return Revocation{cause, status} }

// Is makes a revocation equal to [context.Canceled].
func (Revocation) Is(target error) bool { return target == context.Canceled }

// Unwrap returns why the queue has ended the turn.
func (r Revocation) Unwrap() error { return r.error }

// IsRevocation reports whether a turn has ended by a revocation.
func IsRevocation(cause error) bool {
	_, ok := errors.AsType[Revocation](cause)
	return ok
}

// answer replaces the error of handlers whose turn was revoked by the cause.
func (w *Writer) answer(err error) error {
	if err == nil && !w.unanswered {
		return nil
	}
	revoked, ok := errors.AsType[Revocation](context.Cause(w.turn))
	if !ok {
		return err
	}
	return caddyhttp.Error(revoked.status, revoked.error)
}
