package lease

import (
	"sync"
	"time"
)

// Observer measures how long other processes have not renewed their leases, for servers that cannot:
// somebody may set their clocks. A renewal increments a counter there. A process that sees on its own
// clock that a counter does not move for the lease's time to live may end the lease, if the
// counter has not moved meanwhile. Its process has given up before, because it counts from the
// sending of that renewal. The zero value is ready. All methods may be called from many
// goroutines.
type Observer struct {
	mu   sync.Mutex
	seen map[int64]sighting // by the session's ID
}

// sighting is of a lease whose counter has not moved since it was first seen.
type sighting struct {
	renewals int64
	ends     time.Duration // by Uptime, unless the counter moves
}

// Heartbeat is what the servers say of a session. Its time to live is in microseconds.
type Heartbeat struct{ ID, Renewals, TTL int64 }

// See notes all sessions of other processes, which were just read. It returns how long to wait until
// the next one may have ended, at most an hour.
func (o *Observer) See(all []Heartbeat) (next time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, now := o.seen, Uptime()
	o.seen, next = make(map[int64]sighting), time.Hour
	for _, h := range all {
		s, known := before[h.ID]
		if !known || s.renewals != h.Renewals {
			s = sighting{h.Renewals, now + time.Duration(h.TTL)*time.Microsecond}
		}
		o.seen[h.ID], next = s, min(next, s.ends-now)
	}
	return next
}

// Stale returns the sessions that have ended, and the counter of each.
func (o *Observer) Stale() (ids, renewals []int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, s := range o.seen {
		if Uptime() >= s.ends {
			ids, renewals = append(ids, id), append(renewals, s.renewals)
		}
	}
	return ids, renewals
}
