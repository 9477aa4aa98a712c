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

	mu    sync.Mutex
	names []string
	left  atomic.Int32 // how many names
}

// removeFinished removes the file of a ticket that has handed the turn on within
// this process. The caller gives up a use of the directory; see [File.release].
func (d *directory) removeFinished(name string) {
	if !d.changing.TryLock() {
		d.removals.add(name)
		d.removeLeft()
		return
	}
	d.removeFile(name)
	d.changing.Unlock()
	d.engine.release(d)
	d.removeLeft()
}

// removeLeft removes what was left to be removed, unless somebody is at it who
// will.
func (d *directory) removeLeft() {
	for d.left.Load() > 0 && d.changing.TryLock() {
		for _, name := range d.removals.take() {
			d.removeFile(name)
			d.engine.release(d)
		}
		d.changing.Unlock()
	}
}

func (r *removals) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
	r.left.Store(int32(len(r.names)))
}

func (r *removals) take() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, r.names = r.names, nil
	r.left.Store(0)
	return names
}
