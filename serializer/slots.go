package serializer

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A queue may have slots; see [Arrival.Slots]. Each slot is a queue of its own with one inside,
// and the callers inside the first queue are those that come to it. So a slot has one user in all
// processes, on every store, and a crash frees it together with the turn.
//
// A caller that is inside first tries the free slots: it arrives there, and is refused unless it
// enters at once. If it gets none, it waits in all their queues, and takes the first turn that
// comes. Waiting in one of them would not do: another slot may become free, and stay idle. The
// holder of the one may be stopped.
//
// There are as many slots as callers may be inside, and a turn leaves its slot before the queue. So
// a slot is free, and somebody waits only for a hand-over: two may try the same slot, while a third
// caller takes the other. Leases may end a slot later than the turn. Only after a reload, or with a
// [Rule] that admits more than there are slots, callers wait for each other's work.
//
// One thing remains imperfect: a process that is stopped at just that moment, while it waits in all
// queues, holds up all slots until it continues, dies or loses its lease.
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

// taking is what a caller inside has, or wants, of the slots. Its engine's lock guards it.
type taking struct {
	slots func() []string
	name  string  // of its slot, or ""
	slot  *Ticket // in the slot's queue, which is inside, or nil
}

// Slot implements [Turn].
func (t *Ticket) Slot() string {
	if t.taking == nil {
		return ""
	}
	return t.taking.name
}

// wantsSlotLocked reports whether a ticket is inside, but not its caller, which has no slot.
func (t *Ticket) wantsSlotLocked() bool {
	return t.state == inside && t.taking != nil && t.taking.slot == nil
}

// takeSlot ends the wait of a ticket that is inside, with a slot or with a refusal.
func (e *Engine) takeSlot(t *Ticket) {
	name, slot, err := e.findSlot(t)
	e.mu.Lock()
	if err != nil {
		e.refuseLocked(t, err)
	} else if t.state == inside {
		t.taking.name, t.taking.slot, slot = name, slot, nil
		t.wakeLocked(nil)
	}
	e.mu.Unlock()
	if slot != nil { // its caller has given up
		slot.Leave()
	}
}

// findSlot finds a slot for a ticket that is inside, and enters its queue.
func (e *Engine) findSlot(t *Ticket) (name string, slot *Ticket, err error) {
	ctx, names := t.Context(), t.taking.slots()
	if len(names) == 0 {
		return "", nil, &StorageError{"taking a slot in", e.Path(), errors.New("the queue has no slots")}
	}
	for untried := slices.Clone(names); ; {
		i := e.longestFree(t.Queue, untried)
		if i < 0 {
			break
		}
		turn, err := e.Enter(ctx, slotArrival(t, untried[i], true))
		if err == nil {
			return untried[i], turn.(*Ticket), nil
		} else if ReasonOf(err) != ReasonTimeout {
			return "", nil, causeOf(err)
		}
		untried = slices.Delete(untried, i, i+1)
	}
	if t.noWait {
		return "", nil, ErrNotFree
	}
	return e.awaitSlot(ctx, t, names)
}

// slotArrival is that of a ticket that is inside, in the queue of a slot. If the slot's turn is
// revoked, so is the ticket's.
func slotArrival(t *Ticket, name string, noWait bool) Arrival {
	return Arrival{
		Queue: slotQueue(t.Queue, name), Client: tokenAddress(t.Number), NoWait: noWait, Holds: []Turn{t},
		Revoke: func(cause error) {
			t.engine.mu.Lock()
			defer t.engine.mu.Unlock()
			if t.state == inside {
				t.revokeLocked(cause)
			}
		},
	}
}

// longestFree returns which of the slots is free and has been for longest, as far as is known
// here, or -1. The others come after it from now on.
func (e *Engine) longestFree(queue string, names []string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	found, first, of := -1, time.Duration(math.MaxInt64), ""
	for i, name := range names {
		slot := slotQueue(queue, name)
		q, used := e.queues[slot], e.slotsUsed[slot]
		if (q == nil || q.length == 0) && used < first {
			found, first, of = i, used, slot
		}
	}
	if found >= 0 {
		e.noteSlotLocked(of)
	}
	return found
}

// awaitSlot waits in the queues of all slots, and returns the first turn.
func (e *Engine) awaitSlot(ctx context.Context, t *Ticket, names []string) (name string, slot *Ticket, err error) {
	type result struct {
		name string
		turn Turn
		err  error
	}
	results := make(chan result, len(names))
	ctx, cancel := context.WithCancel(ctx)
	for _, name := range names {
		go func() {
			turn, err := e.Enter(ctx, slotArrival(t, name, false))
			results <- result{name, turn, err}
		}()
	}
	first := <-results
	cancel()
	go func() {
		for range len(names) - 1 {
			if other := <-results; other.turn != nil {
				other.turn.Leave()
			}
		}
	}()
	slot, _ = first.turn.(*Ticket)
	return first.name, slot, causeOf(first.err)
}

// causeOf is the cause of a refusal, which does not name the queue.
func causeOf(err error) error {
	if refused, ok := errors.AsType[*Refused](err); ok {
		return refused.Err
	}
	return err
}

// leaveSlotLocked frees the slot of a ticket that is leaving. The ticket takes that of the slot with
// it out of the store.
func (e *Engine) leaveSlotLocked(t *Ticket) {
	if t.taking != nil && t.taking.slot != nil {
		e.noteSlotLocked(t.taking.slot.Queue)
		e.takeOutLocked(t.taking.slot)
	}
}

// knownSlots bounds how many slots are known by when they were last seen in use. All are forgotten
// when more are used, which needs many queues with slots.
const knownSlots = 4096

func (e *Engine) noteSlotLocked(slot string) {
	if len(e.slotsUsed) >= knownSlots {
		clear(e.slotsUsed)
	}
	e.slotsUsed[slot] = time.Since(launch)
}

// slotsLocked are the slots that tickets of all processes have, except those with long names. The
// keys are those of slotKey.
func (e *Engine) slotsLocked() map[string]string {
	slots := make(map[string]string)
	for _, q := range e.queues {
		rest, isSlot := strings.CutPrefix(q.name, slotMark)
		end := strings.LastIndex(rest, slotMark)
		if !isSlot || end < 0 { // another queue, or a hash
			continue
		}
		slot, _ := url.PathUnescape(strings.TrimSuffix(rest[end+len(slotMark):], "_"))
		for t := range q.all() {
			if t.admitted {
				slots[rest[:end]+t.Client] = slot
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
