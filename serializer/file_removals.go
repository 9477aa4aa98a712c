package serializer

import (
	"sync"
	"sync/atomic"
)

// removals are the files of finished tickets that are still to be removed.
//
// The kernel serializes links and unlinks in a directory, and two threads that contend
// lose more time than the calls take. So if no other process waits for a file to go, only
// one thread of this process at a time changes the directory. It also removes the files
// that others have queued in the meantime.
type removals struct {
	changing sync.Mutex // held while changing the directory

	mu      sync.Mutex
	tickets []*ticket
	left    atomic.Int32 // len(tickets), to be read without mu
}

// removeFinished removes the file of a ticket that has handed the turn over within this
// process, and ends one use of the directory.
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

// removeLeft removes the queued files, unless another thread is changing the directory:
// that thread will remove them.
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
