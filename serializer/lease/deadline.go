package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Why a session ends: no renewal was answered in time, or there is no such lease any more.
var (
	ErrDeadline = errors.New("no keep-alive was answered in time")
	ErrEnded    = errors.New("the lease has ended")
)

// checkInterval is the longest time between two checks of the clock, because timers stand
// still while the machine is suspended.
const checkInterval = 200 * time.Millisecond

// Margin is the time between the deadline of a session and the end of its lease. It covers
// the time that a holder needs to stop, and clocks that run at different speeds.
func Margin(ttl time.Duration) time.Duration { return max(ttl/5, 500*time.Millisecond) }

// Deadline is until when a process may rely on one lease. All methods may be called
// from many goroutines.
type Deadline struct {
	clock func() time.Duration
	ended func(cause error)

	mu       sync.Mutex
	deadline time.Duration
	trouble  error // why the last renewal failed
	over     bool
}

// NewDeadline is for a lease that was requested at the moment sent, by a clock such as [Uptime].
// When the session ends, ended is called once, with the cause.
func NewDeadline(clock func() time.Duration, sent, ttl time.Duration, ended func(cause error)) *Deadline {
	d := &Deadline{clock: clock, ended: ended, deadline: sent + ttl - Margin(ttl)}
	go d.watch()
	return d
}

// watch ends the session at its deadline.
func (d *Deadline) watch() {
	left, trouble := d.state()
	for ; left > 0; left, trouble = d.state() {
		time.Sleep(min(left, checkInterval))
	}
	cause := ErrDeadline
	if trouble != nil {
		cause = fmt.Errorf("%w: %w", ErrDeadline, trouble)
	}
	d.End(cause)
}

// Renew sends a renewal, and moves the deadline once it is answered. An answer that comes
// after the deadline, or after that to a later renewal, does nothing. If the error wraps
// [ErrEnded], the session ends. Any other is part of the cause if the deadline passes.
func (d *Deadline) Renew(send func() (ttl time.Duration, err error)) error {
	sent := d.clock()
	ttl, err := send()
	if errors.Is(err, ErrEnded) {
		d.End(err)
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	deadline := sent + ttl - Margin(ttl)
	switch {
	case err != nil:
		d.trouble = err
	case !d.over && d.clock() < d.deadline && deadline > d.deadline:
		d.deadline, d.trouble = deadline, nil
	}
	return err
}

// Keep renews the lease until ctx is done: each quarter of its time to live, and soon again
// after a failure. That counts from the sending, since the lease may have taken long to begin.
func (d *Deadline) Keep(ctx context.Context, ttl time.Duration, renew func() error) {
	for next := d.deadline + Margin(ttl) - ttl*3/4; ctx.Err() == nil; {
		Sleep(ctx, next-d.clock())
		if next = d.clock() + ttl/4; renew() != nil {
			next = d.clock() + RetryPause
		}
	}
}

// Stands reports whether the process may still rely on the lease.
func (d *Deadline) Stands() bool {
	left, _ := d.state()
	return left > 0
}

// state returns for how long the process may rely on the lease, and why the last renewal failed.
func (d *Deadline) state() (left time.Duration, trouble error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		left = d.deadline - d.clock()
	}
	return left, d.trouble
}

// End ends the session before its deadline, unless it has ended.
func (d *Deadline) End(cause error) {
	if d.Stop() {
		d.ended(cause)
	}
}

// Stop is like End, but without the call. It reports whether the session had not ended.
func (d *Deadline) Stop() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.over
	d.over = true
	return first
}
