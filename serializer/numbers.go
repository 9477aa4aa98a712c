package serializer

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// lastStamp is the number after which a batch's tickets are to be numbered: the
// greatest ever given out. The caller holds the guard and has observed.
func (d *directory) lastStamp(batch []*ticket) (uint64, error) {
	d.engine.mu.Lock()
	others, last := d.others, d.engine.last
	d.engine.mu.Unlock()
	if !others && d.sys.notifies() {
		return last, nil
	}
	recorded, err := d.sys.last()
	if err != nil {
		return 0, err
	}
	if recorded >= minStamp && recorded < maxStamp {
		return d.raise(batch, max(last, recorded)), nil
	}
	return max(last, d.greatest()), nil
}

func (d *directory) greatest() (stamp uint64) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, e := range d.files {
		stamp = max(stamp, e.Stamp)
	}
	return stamp
}

// raise returns last, or more if somebody put a smaller number into the guard
// file than tickets in the batch's lines have: before those, a new one would be
// let in. Strangers' files do not count, whatever their numbers are.
func (d *directory) raise(batch []*ticket, last uint64) uint64 {
	later := d.later(batch, last)
	if later == nil {
		return last
	}
	d.observing.Lock()
	defer d.observing.Unlock()
	for _, e := range later {
		if !e.Local() && !e.known {
			d.identify(e)
		}
		if e.Local() || e.known {
			last = max(last, e.Stamp)
		}
	}
	return last
}

// later lists tickets in the batch's lines that have greater numbers.
func (d *directory) later(batch []*ticket, last uint64) (entries []*ticket) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, p := range batch {
		l := d.lines[p.Prefix]
		if l == nil {
			continue
		}
		for e := l.Last(); e != nil && e.Stamp > last; e = e.Prev() {
			entries = append(entries, e)
		}
	}
	return entries
}

// record writes down the last number that is being given out.
func (d *directory) record(last uint64) error {
	err := d.sys.setLast(last)
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	d.others = err != nil
	d.engine.last = max(d.engine.last, last)
	return err
}

// join puts a batch of arrivals into their lines. It returns those that got a
// number, in the memory of the batch, and the last number.
func (d *directory) join(batch []*ticket, last uint64) ([]*ticket, uint64, error) {
	f := d.engine
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.retired {
		return nil, last, errReplaced
	}
	joined := batch[:0]
	for _, p := range batch {
		if p.givenUp || p.out {
			continue
		}
		l := d.line(p.Prefix)
		p.position = l.Len()
		if p.max > 0 && l.Waiting() >= p.max {
			p.refuse(ErrFull)
			d.update(l)
			continue
		}
		stamp := d.number(p, last)
		if stamp > maxStamp {
			p.refuse(&StorageError{"numbering tickets in", f.path,
				fmt.Errorf("the clock or the last number, %d, is beyond the year 2286", last)})
			d.update(l)
			continue
		}
		last = stamp
		p.dir = d
		p.seen = d.listings
		d.files[p.name] = p
		d.owned++
		l.insert(p)
		d.update(l)
		joined = append(joined, p)
	}
	return joined, last, nil
}

// number gives an arrival its number and name. A stranger may have a file of
// that name already.
func (d *directory) number(p *ticket, last uint64) (stamp uint64) {
	stamp = nextStamp(d.engine.clock(), last)
	for ; stamp <= maxStamp; stamp++ {
		p.Stamp = stamp
		p.name = p.Name()
		if d.files[p.name] == nil {
			break
		}
	}
	return stamp
}

// recheckTime is how long after a look at the guard a ticket may be made.
const recheckTime = time.Millisecond

// createAll makes the files of tickets. checked is when the guard was known to be
// the one at its path. A process may be stopped after that, and the guard be
// replaced: whoever has the new one by then has seen the directory without these
// tickets. So they are refused, and the error is errReplaced.
func (d *directory) createAll(joined []*ticket, checked time.Time) (replaced error) {
	d.changing.Lock()
	for _, p := range joined {
		err := replaced
		if err == nil {
			err = d.sys.create(p.name, p.Stamp, p.Rule)
		}
		if err == nil && time.Since(checked) > recheckTime {
			err, checked = d.sys.check(), time.Now()
		}
		if err == errReplaced {
			replaced = err
			err = &StorageError{"making lock file in", d.engine.path, errReplaced}
		}
		d.linked(p, err)
	}
	d.changing.Unlock()
	d.removeLeft()
	return replaced
}

// linked notes that the file of a ticket was made, or not.
func (d *directory) linked(p *ticket, err error) {
	f := d.engine
	f.mu.Lock()
	switch {
	case p.out: // refused meanwhile
		f.mu.Unlock()
		d.removeTicket(p)
	case err != nil:
		d.drop(p)
		p.refuse(err)
		f.mu.Unlock()
		if !errors.Is(err, fs.ErrExist) { // else it is somebody else's
			d.removeTicket(p)
		}
	case p.givenUp:
		p.linked = true
		f.mu.Unlock()
		f.leave(p)
	default:
		p.linked = true
		p.seen = d.listings
		if p.Admitted() {
			p.grant()
		}
		f.mu.Unlock()
	}
}

// dismiss refuses tickets whose files were not made.
func (d *directory) dismiss(joined []*ticket, err error) {
	for _, p := range joined {
		d.linked(p, err)
	}
}
