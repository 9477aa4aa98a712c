package serializer

import (
	"math"
	"sync"
	"time"
)

// timeouts are the timeouts of all waiters of an engine. The zero value has none.
//
// A timer for each waiter would be in the runtime's timer heap. Its cost grows with the
// number of waiters, although hardly any timer ever fires. Timeouts of the same length
// expire in the order in which they began. So each length has a list in that order, with
// one timer for the first waiter.
type timeouts struct {
	mu     sync.Mutex
	lists  map[time.Duration]*timeoutList // by length
	closed bool
}

// spareLists is how many lists may exist before an empty one is dropped. Most engines use
// few lengths, and soon need their lists again.
const spareLists = 16

// timeoutList is the timeouts of one length. It is guarded by the lock of timeouts.
type timeoutList struct {
	length      time.Duration
	first, last *waiter
	timer       *time.Timer // never later than the first timeout
}

// timeoutEntry is a waiter's place in a list. It is guarded by the lock of timeouts.
type timeoutEntry struct {
	list           *timeoutList // nil while it is in no list
	expires        time.Duration
	earlier, later *waiter
}

// add begins the timeout of a waiter.
func (t *timeouts) add(w *waiter, length time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(launch)                                        // under the lock, so that the list is in order
	w.timeout.expires = now + min(length, math.MaxInt64-max(now, 0)) // in a test with a clock of its own, now may be negative
	l := t.lists[length]
	if l == nil {
		l = t.addListLocked(length)
	}
	l.append(w)
}

func (t *timeouts) addListLocked(length time.Duration) *timeoutList {
	if t.lists == nil {
		t.lists = make(map[time.Duration]*timeoutList)
	}
	l := &timeoutList{length: length}
	l.timer = time.AfterFunc(length, func() { t.expire(l) })
	t.lists[length] = l
	return l
}

// remove ends the timeout of a waiter, unless it has expired. The timer is not changed:
// setting it for each waiter would cost as much as a timer for each.
func (t *timeouts) remove(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := w.timeout.list
	if l == nil {
		return
	}
	l.remove(w)
	if l.first == nil && (t.closed || len(t.lists) > spareLists) {
		t.dropLocked(l)
	}
}

func (t *timeouts) dropLocked(l *timeoutList) {
	l.timer.Stop()
	delete(t.lists, l.length)
}

// expire notifies all waiters whose time is up, and sets the timer for the next one.
func (t *timeouts) expire(l *timeoutList) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lists[l.length] != l {
		return // dropped at this moment
	}
	for w := l.first; w != nil; w = l.first {
		if left := w.timeout.expires - time.Since(launch); left > 0 {
			l.timer.Reset(left)
			return
		}
		l.remove(w)
		w.expire()
	}
	t.dropLocked(l)
}

// close drops the lists without waiters, and the others once they have none. Until then,
// their timers keep the engine in memory.
func (t *timeouts) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, l := range t.lists {
		if l.first == nil {
			t.dropLocked(l)
		}
	}
}

func (l *timeoutList) append(w *waiter) {
	w.timeout.list, w.timeout.earlier = l, l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.timeout.later = w
	}
	l.last = w
}

func (l *timeoutList) remove(w *waiter) {
	e := &w.timeout
	if e.earlier == nil {
		l.first = e.later
	} else {
		e.earlier.timeout.later = e.later
	}
	if e.later == nil {
		l.last = e.earlier
	} else {
		e.later.timeout.earlier = e.earlier
	}
	e.list, e.earlier, e.later = nil, nil, nil
}
