package redis

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// isInside is the Ref of a ticket of another process whose owner says that it is inside.
const isInside = 1

// Inside implements [serializer.Store].
func (st *Store) Inside(t *serializer.Ticket) bool { return atomic.LoadUint64(&t.Ref) == isInside }

// SetInside implements [serializer.Store].
func (st *Store) SetInside(t *serializer.Ticket, paused bool) {
	if paused {
		go func() {
			_, _ = st.do(st.ctx, "marking a ticket in", "i", strconv.FormatUint(t.Number, 10)) // it is for lists only
		}()
	}
}

// Evict implements [serializer.Store]. The log tells the owner, which alone knows whether
// the ticket is inside.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	number := strconv.FormatUint(t.Number, 10)
	own, err := st.do(ctx, "asking the owner by", "e", number)
	if err == nil && !slices.Contains(own, "e "+number) {
		return serializer.ErrNoTicket
	}
	return err
}

// Pause implements [serializer.Store]. The pause lasts as long as until is ahead of this
// machine's clock. From then on, the server's clock counts.
func (st *Store) Pause(ctx context.Context, name string, until time.Time) error {
	length := int64(0) // for ever
	if until.Before(serializer.Forever) {
		length = max(time.Until(until).Microseconds()+1, 1)
	}
	pause := fmt.Sprintf("%s %d %d", url.PathEscape(name), until.UnixMicro(), length)
	if _, err := st.do(ctx, "changing a pause in", "p", pause); err != nil {
		return fmt.Errorf("pausing queue %q: %w", name, err)
	}
	return nil
}

// Resume implements [serializer.Store].
func (st *Store) Resume(ctx context.Context, name string) error {
	if _, err := st.do(ctx, "changing a pause in", "p", url.PathEscape(name)+" 0 0"); err != nil {
		return fmt.Errorf("resuming queue %q: %w", name, err)
	}
	return nil
}
