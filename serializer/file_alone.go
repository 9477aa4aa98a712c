package serializer

// Most arrivals find nobody else there. For them, a goroutine that gives out the
// ticket would cost more than the ticket: the runtime wakes another thread for it,
// which finds nothing more to do. So a lone caller takes its ticket itself, but only
// where it need not wait for anybody: not for the guard, which another process may
// hold while it is stopped, and not for the disk.

// issueAlone gives out tickets in the goroutine of the caller that is the first to
// ask for one, or has another goroutine do so.
func (f *File) issueAlone() {
	d := f.acquireAtOnce()
	if d == nil {
		go f.issue()
		return
	}
	batch := f.nextBatch(nil)
	if batch == nil { // refused, for the engine closes
		d.sys.unlock()
		d.release()
		return
	}
	if err := f.issueUnder(d, batch); err != nil {
		go func() {
			f.end(batch, err)
			f.issue()
		}()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(batch)
	if len(f.arrivals) > 0 {
		go f.issue()
		return
	}
	f.issuing = false
	f.arrivals = batch[:0]
}

// acquireAtOnce is [File.acquire] for a lone caller. It returns nil where that would have
// to wait.
func (f *File) acquireAtOnce() *directory {
	d := f.current()
	if d == nil {
		return nil
	}
	if d.hasReserves(f.lastStamp()) && d.ownsNoTicket() && d.sys.tryLock() {
		if d.sys.check() == nil {
			return d
		}
		d.sys.unlock()
	}
	d.release()
	return nil
}

// ownsNoTicket reports whether no ticket is ours. Where others have some, more of them are
// about to arrive, and share the use of the guard.
func (d *directory) ownsNoTicket() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owned == 0
}

// hasReserves reports whether the next ticket's number is reserved for sure, so that
// nobody waits for the disk. It is for who gives out tickets.
func (d *directory) hasReserves(last uint64) bool {
	return d.started && nextStamp(d.clock(), last)+reserveAhead/2 <= d.reserved.Load()
}
