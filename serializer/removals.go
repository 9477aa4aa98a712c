package serializer

import (
	"sync"
	"sync/atomic"
)

// removals are the files of finished tickets that wait to be removed.
//
// A link and an unlink exclude each other in the kernel, and two threads that
// meet there lose more time than the calls take. So where nobody else waits for
// a file to go, one at a time of this process changes the directory, and whoever
// is at it also does what others come for meanwhile.
type removals struct {
	changing sync.Mutex // held by the one who is at it

	mu      sync.Mutex
	tickets []*ticket
	left    atomic.Int32 // how many of them
}

// removeFinished removes the file of a ticket that has handed the turn on within
// this process. The caller gives up a use of the directory; see [File.release].
func (d *directory) removeFinished(p *ticket) {
	if !d.changing.TryLock() {
		d.removals.add(p)
		d.removeLeft()
		return
	}
	d.removeTicket(p)
	d.changing.Unlock()
	d.engine.release(d)
	d.removeLeft()
}

// removeLeft removes what was left to be removed, unless somebody is at it who
// will.
func (d *directory) removeLeft() {
	for d.left.Load() > 0 && d.changing.TryLock() {
		for _, p := range d.removals.take() {
			d.removeTicket(p)
			d.engine.release(d)
		}
		d.changing.Unlock()
	}
}

func (r *removals) add(p *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tickets = append(r.tickets, p)
	r.left.Store(int32(len(r.tickets)))
}

func (r *removals) take() (tickets []*ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tickets, r.tickets = r.tickets, nil
	r.left.Store(0)
	return tickets
}
