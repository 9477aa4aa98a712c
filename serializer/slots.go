package serializer

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// A queue may have slots; see [Arrival.Slots]. Each slot is a queue of its own with one inside,
// and the callers inside the first queue are those that come to it. So a slot has one user in all
// processes, on every store, and a crash frees it together with the turn.
//
// A caller that is inside tries the free slots: it arrives there, and is refused unless it enters at
// once. If it gets none, it looks again soon, at all of them. Waiting in the queue of one would not
// do: another slot may become free, and stay idle. Waiting in all of them would not do either: a
// process that is stopped at that moment would hold up all slots.
//
// There are as many slots as callers may be inside, and a turn leaves its slot before the queue. So
// a slot is free, and somebody looks again only after a hand-over: two may try the same slot, while
// a third caller takes the other. Leases may end a slot later than the turn. Only after a reload, while a slot
// rests, or with a [Rule] that admits more than there are slots, callers wait for each other's work. They
// take slots in their order, those of all processes.
//
// Lists do not show the slots' queues, and no pause reaches them.

// slotMark begins the names of the slots' queues, and comes before that of the slot. [QueueName]
// never writes it.
const slotMark = "%="

// slotQueue is the name of the queue of a slot. A long one has only a hash, and no slot's name.
func slotQueue(queue, slot string) string {
	name := slotMark + escapeQueueName(slot) + slotMark + queue
	if len(name) > maxQueueName {
		return slotMark + slotMark + hashOf(name) + "_"
	}
	return name
}

func isSlotQueue(name string) bool { return strings.HasPrefix(name, slotMark) }

// Slot implements [Turn].
func (t *Ticket) Slot() string {
	if t.slot == nil {
		return ""
	}
	return t.slot.name
}

// slotInterval is how often a caller inside looks whether a slot has become free.
const slotInterval = time.Millisecond

// takeSlot ends the wait of a ticket that is inside, with a slot or with a refusal. A slot's ticket that is
// revoked revokes the other one, too.
func (e *Engine) takeSlot(t *Ticket) {
	for ctx := t.Context(); ctx.Err() == nil; { // it has not been refused
		if !e.chooseSlot(t, t.slots()) {
			if t.noWait {
				e.giveUp(t, ErrNotFree)
			}
			time.Sleep(slotInterval)
			continue
		}
		turn, err := e.Enter(ctx, Arrival{
			Queue: t.slot.queue, Client: holderAddress(t), NoWait: true, Holds: []Turn{t},
			Revoke: func(cause error) { e.takeBack(t, cause) },
		})
		if err != nil {
			if ReasonOf(err) != ReasonTimeout { // otherwise, another process was faster
				e.giveUp(t, errors.Unwrap(err)) // which does not name the slot's queue
			}
			continue
		}
		e.mu.Lock()
		gone := t.state != seeking
		if !gone {
			t.inSlot = turn.(*Ticket)
			t.enterLocked()
		}
		e.mu.Unlock()
		if gone {
			turn.Leave()
		}
		return
	}
}

// slot is what is known here of a slot. Times are since launch.
type slot struct {
	name, queue string
	given       time.Duration // or tried, for the last time
	used        time.Duration // given or left, for the last time
	failed      time.Duration // for the last time
}

// longestRest bounds how long a slot rests that has failed: the callers at the others may never leave.
const longestRest = time.Minute

// SlotFailed implements [Turn].
func (t *Ticket) SlotFailed() {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	if t.slot != nil {
		t.slot.failed = time.Since(launch)
	}
}

// chooseSlot gives a ticket the slot to try: of those that are free for it, the one that has been for
// longest, as far as is known here. It reports whether there is one. The slot that was given before all
// others never rests, so they never rest all at once.
func (e *Engine) chooseSlot(t *Ticket, names []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, oldest := time.Since(launch), time.Duration(math.MaxInt64)
	for _, name := range names {
		oldest = min(oldest, e.slotLocked(t.Queue, name).given)
	}
	var free []*slot
	for _, name := range names {
		s := e.slotLocked(t.Queue, name)
		rests := s.failed > s.given && s.given > oldest && now-s.failed < longestRest
		if q := e.queues[s.queue]; !rests && (q == nil || q.length == 0) {
			free = append(free, s)
		}
	}
	if len(free) == 0 || t.state != seeking || e.seekersBeforeLocked(t) >= len(free) {
		return false
	}
	t.slot = slices.MinFunc(free, func(a, b *slot) int { return cmp.Compare(a.used, b.used) })
	t.slot.given, t.slot.used = now, now
	return true
}

// seekersBeforeLocked counts the tickets inside before one that have no slot yet, those of all processes:
// for one, a slot may rest that is free for another.
func (e *Engine) seekersBeforeLocked(t *Ticket) (seekers int) {
	slots := sync.OnceValue(e.slotsLocked)
	for o := t.prev; o != nil; o = o.prev {
		has := o.Local() && o.state == inside
		if !has { // its slot's ticket may have been admitted already
			_, has = slots()[holderAddress(o)]
		}
		seekers += one(!has)
	}
	return seekers
}

// knownSlots bounds how many slots are known. All are forgotten when more are used, which needs many
// queues with slots.
const knownSlots = 4096

func (e *Engine) slotLocked(queue, name string) *slot {
	queue = slotQueue(queue, name)
	s := e.slots[queue]
	if s == nil {
		if len(e.slots) >= knownSlots {
			clear(e.slots)
		}
		s = &slot{name: name, queue: queue}
		e.slots[queue] = s
	}
	return s
}

// slotsLocked are the slots that tickets of all processes have, by [holderAddress]. Instead of long names,
// there are empty ones.
func (e *Engine) slotsLocked() map[string]string {
	slots := make(map[string]string)
	for name, q := range e.queues {
		rest, isSlot := strings.CutPrefix(name, slotMark)
		if !isSlot {
			continue
		}
		slot, _, _ := strings.Cut(rest, slotMark)
		slot, _ = url.PathUnescape(slot)
		for t := range q.all() {
			if t.admitted {
				slots[t.Client] = slot
			}
		}
	}
	return slots
}

// holderAddress is what a slot's ticket has in place of a client's address: a hash of its holder's queue,
// and its holder's token. So all processes know whose it is.
func holderAddress(holder *Ticket) string {
	address := sha256.Sum256([]byte(holder.Queue))
	address[0] = 0xfd // of a private network
	binary.BigEndian.PutUint64(address[8:], holder.Number)
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(address[:16])), 0).String()
}
