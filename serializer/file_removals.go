package serializer

import (
	"sync"
	"sync/atomic"
)

// removals are the files of finished tickets that wait to be removed.
//
// A link and an unlink exclude each other in the kernel, and two threads that
// meet there lose more time than the calls take. So where nobody else waits for
// a file to go, one thread of this process at a time changes the directory. It also
// removes the files that others bring meanwhile.
type removals struct {
	changing sync.Mutex // held by the one that changes the directory

	mu      sync.Mutex
	tickets []*ticket
	left    atomic.Int32 // how many of them
}

// removeFinished removes the file of a ticket that has handed the turn over within
// this process, and ends a use of the directory.
func (d *directory) removeFinished(t *ticket) {
	r := &d.removals
	if !r.changing.TryLock() {
		r.add(t)
		d.removeLeft()
		return
	}
	d.removeTicket(t)
	r.changing.Unlock()
	d.release()
	d.removeLeft()
}

// removeLeft removes the files that were left to be removed, unless another thread
// is at it, which will.
func (d *directory) removeLeft() {
	r := &d.removals
	for r.left.Load() > 0 && r.changing.TryLock() {
		for _, t := range r.take() {
			d.removeTicket(t)
			d.release()
		}
		r.changing.Unlock()
	}
}

func (r *removals) add(t *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tickets = append(r.tickets, t)
	r.left.Store(int32(len(r.tickets)))
}

func (r *removals) take() (tickets []*ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tickets, r.tickets = r.tickets, nil
	r.left.Store(0)
	return tickets
}
