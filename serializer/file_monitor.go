package serializer

import (
	"time"
)

const (
	// tickInterval is how often the engine checks what no event reports: that other
	// owners are alive, and that the directory is still the same.
	tickInterval = 100 * time.Millisecond

	// lingerTime is how long the directory stays open after the last turn.
	lingerTime = 5 * time.Second

	// unknownPerTick bounds how many tickets are identified in one tick.
	unknownPerTick = 64

	// If an owner has closed its file and still holds its lock, it is probed again this
	// often, at this interval.
	deathRetries = 20
	deathPause   = 100 * time.Microsecond
)

// monitor syncs and checks the directory while it is open, and shuts it in the end.
func (d *directory) monitor() {
	defer close(d.done)
	next := time.Now().Add(d.tickTime)
	for !d.owner.mayShut(d) {
		d.await(time.Until(next))
		d.checkVacancy()
		d.syncQuietly()
		if time.Now().Before(next) {
			continue
		}
		d.tick()
		next = time.Now().Add(d.tickTime)
	}
	d.reapBeforeShut()
	d.shut()
}

// await waits for something to do: for a change in the directory if a local ticket waits
// for another process, and otherwise for a nudge.
func (d *directory) await(timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	if d.waitsForRemote() {
		// Not longer: an event that another sync consumes does not end the wait.
		d.sys.wait(min(timeout, tickInterval))
		return
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-d.nudge:
	case <-timer.C:
	}
}

func (d *directory) waitsForRemote() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked > 0 && !d.retirement.retired
}

// syncQuietly syncs, and only logs errors. Arrivals that need a ticket report them.
// Waiters keep waiting, because nothing is known to be over.
func (d *directory) syncQuietly() {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if d.retirementNow().retired {
		return
	}
	if err := d.syncer.sync(false); err != nil {
		d.syncer.complainAbout("", err)
	}
}

// reapBeforeShut reaps dead owners while this process is still in the directory: the next
// one may come much later.
func (d *directory) reapBeforeShut() {
	if d.retirementNow().retired {
		return
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if err := d.syncer.sync(false); err != nil {
		d.syncer.complainAbout("", err)
		return
	}
	d.syncer.reapDead()
	d.syncer.removeStaleMarkers(true)
}

// tick checks what no event reports.
func (d *directory) tick() {
	if !d.retirementNow().retired && d.sys.check() == errReplaced {
		d.owner.retire(d)
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
	s := &d.syncer
	s.sys.widen()
	s.openBarredOwners()
	s.reapDead()
	if d.retirementNow().retired {
		return
	}
	s.identifyTickets(d.firstUnknown())
	d.refuseBarred()
	s.endPauses()
	s.settleAllMissing()
	s.abandonUnowned()
	s.removeStaleMarkers(false)
	d.clearLeftovers()
	s.refresh()
}

// firstUnknown lists the tickets without a known owner that are ahead of all local ones,
// in queues in which a local ticket waits.
func (d *directory) firstUnknown() (tickets []*ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.queues.byName {
		if !q.blocked {
			continue
		}
		for t := q.First(); t != nil && !t.Local() && len(tickets) < unknownPerTick; t = t.Next() {
			if !t.known {
				tickets = append(tickets, t)
			}
		}
	}
	return tickets
}

// refreshTime is how often the permanent files are touched, so that programs that clean
// up old files leave them alone.
const refreshTime = time.Minute

func (s *syncer) refresh() {
	if time.Since(s.refreshed) < refreshTime {
		return
	}
	s.refreshed = time.Now()
	s.sys.refresh()
}

// shut frees what the directory holds.
func (d *directory) shut() {
	for _, o := range d.syncer.owners.byID {
		o.close()
	}
	d.sys.close()
	d.owner.shut(d)
}
