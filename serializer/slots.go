package serializer

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"net/url"
	"strings"
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

// slotQueue is the name of the queue of a slot.
func slotQueue(queue, slot string) string {
	name := slotMark + queue + slotMark + escapeQueueName(slot) + "_"
	if len(name) > maxQueueName {
		return slotMark + hashOf(name) + "_"
	}
	return name
}

func isSlotQueue(name string) bool { return strings.HasPrefix(name, slotMark) }

// Slot implements [Turn].
func (t *Ticket) Slot() string { return t.slotName }

// wantsSlotLocked reports whether a ticket is inside, but not its caller, which has no slot.
func (t *Ticket) wantsSlotLocked() bool {
	return t.state == inside && t.slots != nil && t.slot == nil
}

// takeSlot ends the wait of a ticket that is inside, with a slot or with a refusal.
func (e *Engine) takeSlot(t *Ticket) {
	name, slot, err := e.findSlot(t)
	e.mu.Lock()
	if err != nil {
		e.refuseLocked(t, err)
	} else if t.state == inside {
		t.slotName, t.slot, slot = name, slot, nil
		use := e.slotUseLocked(t.slot.Queue)
		use.given, use.failed = time.Since(launch), 0
		t.wakeLocked(nil)
	}
	e.mu.Unlock()
	if slot != nil { // its caller has given up
		slot.Leave()
	}
}

// slotInterval is how often a caller inside looks whether a slot has become free.
const slotInterval = time.Millisecond

// findSlot finds a slot for a ticket that is inside, and enters its queue.
func (e *Engine) findSlot(t *Ticket) (name string, slot *Ticket, err error) {
	ctx := t.Context()
	for {
		names := t.slots()
		if len(names) == 0 {
			return "", nil, &StorageError{"taking a slot in", e.Path(), errors.New("the queue has no slots")}
		}
		for i := e.longestFree(t, names); i >= 0; i = e.longestFree(t, names) {
			turn, err := e.Enter(ctx, slotArrival(t, names[i]))
			if err == nil {
				return names[i], turn.(*Ticket), nil
			}
			if refused, ok := errors.AsType[*Refused](err); ok {
				err = refused.Err // which does not name the slot's queue
			}
			if ReasonOf(err) != ReasonTimeout {
				return "", nil, err
			}
		}
		if t.noWait {
			return "", nil, ErrNotFree
		}
		select {
		case <-time.After(slotInterval):
		case <-ctx.Done():
			return "", nil, context.Cause(ctx)
		}
	}
}

// slotArrival is that of a ticket that is inside, in the queue of a slot. If the slot's turn is
// revoked, so is the ticket's.
func slotArrival(t *Ticket, name string) Arrival {
	return Arrival{
		Queue: slotQueue(t.Queue, name), Client: tokenAddress(t.Number), NoWait: true, Holds: []Turn{t},
		Revoke: func(cause error) {
			t.engine.mu.Lock()
			defer t.engine.mu.Unlock()
			if t.state == inside {
				t.revokeLocked(cause)
			}
		},
	}
}

// slotUse is what is known here of a slot. Times are since launch.
type slotUse struct {
	given  time.Duration // to a caller, for the last time
	used   time.Duration // seen in use, for the last time
	failed time.Duration // since it was given; or 0
}

// longestRest bounds how long a slot rests that has failed: the callers at the others may never leave.
const longestRest = time.Minute

// SlotFailed implements [Turn].
func (t *Ticket) SlotFailed() {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	if t.slot != nil {
		t.engine.slotUseLocked(t.slot.Queue).failed = time.Since(launch)
	}
}

// longestFree returns which of the slots is free for a ticket and has been for longest, as far as is
// known here, or -1. The others come after it from now on. The slot that was given before all others
// never rests, so they never rest all at once.
func (e *Engine) longestFree(t *Ticket, names []string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.state != inside { // refused meanwhile
		return -1
	}
	now, oldest := time.Since(launch), time.Duration(math.MaxInt64)
	for _, name := range names {
		oldest = min(oldest, e.slotUseLocked(slotQueue(t.Queue, name)).given)
	}
	free, found, longest := 0, -1, new(slotUse)
	for i, name := range names {
		slot := slotQueue(t.Queue, name)
		use := e.slotUseLocked(slot)
		if use.failed > 0 && use.given > oldest && now-use.failed < longestRest {
			continue
		}
		if q := e.queues[slot]; q != nil && q.length > 0 {
			continue
		}
		free++
		if found < 0 || use.used < longest.used {
			found, longest = i, use
		}
	}
	if free == 0 || e.seekersBeforeLocked(t) >= free {
		return -1
	}
	longest.used = now
	return found
}

// seekersBeforeLocked counts the tickets inside before one that have no slot yet, those of all processes:
// for one, a slot may rest that is free for another.
func (e *Engine) seekersBeforeLocked(t *Ticket) (seekers int) {
	var slots map[string]string
	for o := t.prev; o != nil; o = o.prev {
		has := o.waiter != nil && !o.wantsSlotLocked()
		if o.waiter == nil {
			if slots == nil {
				slots = e.slotsLocked()
			}
			_, known := slots[slotKey(o)]
			_, hashed := slots[tokenAddress(o.Number)]
			has = known || hashed
		}
		if !has {
			seekers++
		}
	}
	return seekers
}

// leaveSlotLocked frees the slot of a ticket that is leaving. The ticket takes that of the slot with
// it out of the store.
func (e *Engine) leaveSlotLocked(t *Ticket) {
	if t.slot != nil {
		e.slotUseLocked(t.slot.Queue).used = time.Since(launch)
		e.takeOutLocked(t.slot)
	}
}

// knownSlots bounds of how many slots the use is known. All are forgotten when more are used, which
// needs many queues with slots.
const knownSlots = 4096

func (e *Engine) slotUseLocked(slot string) *slotUse {
	use := e.slotUses[slot]
	if use == nil {
		if use = new(slotUse); len(e.slotUses) >= knownSlots {
			clear(e.slotUses)
		}
		e.slotUses[slot] = use
	}
	return use
}

// slotsLocked are the slots that tickets of all processes have. The keys are those of slotKey. Of slots with long
// names, only the token of the holder is known.
func (e *Engine) slotsLocked() map[string]string {
	slots := make(map[string]string)
	for _, q := range e.queues {
		rest, isSlot := strings.CutPrefix(q.name, slotMark)
		end := strings.LastIndex(rest, slotMark)
		if !isSlot {
			continue
		}
		queue, slot := "", ""
		if end >= 0 { // else it is a hash
			queue = rest[:end]
			slot, _ = url.PathUnescape(strings.TrimSuffix(rest[end+len(slotMark):], "_"))
		}
		for t := range q.all() {
			if t.admitted {
				slots[queue+t.Client] = slot
			}
		}
	}
	return slots
}

func slotKey(t *Ticket) string { return t.Queue + tokenAddress(t.Number) }

// tokenAddress is what a slot's ticket has in place of a client's address: the token of its holder.
// So all processes know whose it is.
func tokenAddress(token uint64) string {
	bytes := [16]byte{0xfd} // a private network
	binary.BigEndian.PutUint64(bytes[8:], token)
	return netip.AddrPortFrom(netip.AddrFrom16(bytes), 0).String()
}
