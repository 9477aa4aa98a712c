package redis

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// maxRemovals bounds how many tickets one request takes out, and so the time of the script.
const maxRemovals = 256

// Remove implements [serializer.Store].
func (st *Store) Remove(t *serializer.Ticket) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.sessions[t.Ref]
	s.local--
	if s.over {
		s.forgetIfLeftLocked()
		return
	}
	if s.tickets[t.Number] == t { // otherwise, somebody has taken it out
		delete(s.tickets, t.Number)
		s.removeLocked(t.Number)
	}
}

// removeLocked has a ticket taken out. Numbers are never used again, so that may happen at
// any time.
func (s *session) removeLocked(number uint64) {
	s.removals = append(s.removals, strconv.FormatUint(number, 10))
	s.startRemovingLocked()
}

func (s *session) removeAgain(numbers []string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.removals = append(s.removals, numbers...)
	s.startRemovingLocked()
}

func (s *session) startRemovingLocked() {
	if !s.removing && len(s.removals) > 0 {
		s.removing = true
		go s.removeAll()
	}
}

// removeAll takes tickets out until none is left. Those that cannot be taken out before
// the session ends go with it.
func (s *session) removeAll() {
	// Let a caller that has just left queue again: then its next ticket takes the removal
	// along.
	for n, begun := 0, time.Now(); n < 8 || time.Since(begun) < 30*time.Microsecond; n++ {
		runtime.Gosched()
	}
	for numbers := s.nextRemovals(); numbers != nil; numbers = s.nextRemovals() {
		if _, err := s.send(s.ctx, newRequest("keep", removing(numbers)...)); err != nil {
			s.store.complain(fmt.Errorf("taking %d tickets out, such as %s: %w", len(numbers), numbers[0], err))
			s.removeAgain(numbers)
			lease.Sleep(s.ctx, lease.RetryPause)
		}
	}
}

func (s *session) nextRemovals() []string {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if len(s.removals) == 0 || s.over {
		s.removing = false
		return nil
	}
	return s.takeRemovalsLocked()
}

func (s *session) takeRemovalsLocked() []string {
	n := min(maxRemovals, len(s.removals))
	numbers := s.removals[:n:n]
	s.removals = s.removals[n:]
	return numbers
}

// removing are the operations that take tickets out.
func removing(numbers []string) (operations []string) {
	for _, number := range numbers {
		operations = append(operations, "r", number)
	}
	return operations
}
