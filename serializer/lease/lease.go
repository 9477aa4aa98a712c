// Package lease is what stores with leases share: a session with its own deadline.
//
// A process whose claim expires by itself, when it dies or is cut off, must notice that
// before others do. So it counts its own time: from the sending of the last renewal that
// was answered, less a margin. It counts on a clock that runs while the machine is
// suspended, as the lease does.
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

// RetryPause is how long to wait before a request that failed is repeated.
const RetryPause = 100 * time.Millisecond

// checkInterval is the longest time between two checks of the clock, because timers stand
// still while the machine is suspended.
const checkInterval = 200 * time.Millisecond

// Margin is the time between the deadline of a session and the end of its lease. It covers
// the time that a holder needs to stop, and clocks that run at different speeds.
func Margin(ttl time.Duration) time.Duration { return max(ttl/5, 500*time.Millisecond) }

// Session is the time in which a process may rely on one lease. All methods may be called
// from many goroutines.
type Session struct {
	clock func() time.Duration
	ended func(cause error)

	mu       sync.Mutex
	deadline time.Duration
	trouble  error // why the last renewal failed
	timer    *time.Timer
	over     bool
}

// Begin starts a session for a lease that was requested at the moment sent, by the clock;
// nil means [Uptime]. When the session ends, ended is called once, with the cause.
func Begin(clock func() time.Duration, sent, ttl time.Duration, ended func(cause error)) *Session {
	if clock == nil {
		clock = Uptime
	}
	s := &Session{clock: clock, ended: ended, deadline: sent + ttl - Margin(ttl)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.nextCheckLocked(), s.check)
	return s
}

// Renew sends a renewal, and moves the deadline once it is answered. An answer that comes
// after the deadline, or after that to a later renewal, does nothing. If the error wraps
// [ErrEnded], the session ends. Any other is part of the cause if the deadline passes.
func (s *Session) Renew(send func() (ttl time.Duration, err error)) error {
	sent := s.clock()
	ttl, err := send()
	if errors.Is(err, ErrEnded) {
		s.End(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := sent + ttl - Margin(ttl)
	switch {
	case err != nil:
		s.trouble = err
	case s.standsLocked() && deadline > s.deadline:
		s.deadline, s.trouble = deadline, nil
	}
	return err
}

// Keep renews the lease until ctx is done: each quarter of its time to live, and soon again
// after a failure.
func (s *Session) Keep(ctx context.Context, ttl time.Duration, renew func() error) {
	for pause := ttl / 4; ctx.Err() == nil; {
		Sleep(ctx, pause)
		if pause = ttl / 4; renew() != nil {
			pause = RetryPause
		}
	}
}

// Forget revokes a lease that can no longer be relied on, so that others need not wait for
// its end. It keeps trying for as long as that may take.
func Forget(ctx context.Context, ttl time.Duration, revoke func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, 2*ttl)
	defer cancel()
	for revoke(ctx) != nil && ctx.Err() == nil {
		Sleep(ctx, 5*RetryPause)
	}
}

// Sleep waits for d, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Stands reports whether the process may still rely on the lease.
func (s *Session) Stands() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standsLocked()
}

func (s *Session) standsLocked() bool { return !s.over && s.clock() < s.deadline }

// End ends the session before its deadline, unless it has ended.
func (s *Session) End(cause error) {
	if s.Stop() {
		s.ended(cause)
	}
}

// Stop is like End, but without the call. It reports whether the session had not ended.
func (s *Session) Stop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.over
	s.over = true
	s.timer.Stop()
	return first
}

// check ends the session at its deadline.
func (s *Session) check() {
	if cause := s.expired(); cause != nil {
		s.End(cause)
	}
}

// expired returns why the session must end now. Otherwise, it sets the timer again.
func (s *Session) expired() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return nil
	case s.standsLocked():
		s.timer.Reset(s.nextCheckLocked())
		return nil
	case s.trouble != nil:
		return fmt.Errorf("%w: %w", ErrDeadline, s.trouble)
	}
	return ErrDeadline
}

// nextCheckLocked is how long to wait before the clock is read again.
func (s *Session) nextCheckLocked() time.Duration {
	return min(s.deadline-s.clock(), checkInterval)
}
