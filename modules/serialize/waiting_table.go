package serialize

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// keptTable holds the tickets that wait for their browsers. There is one in a
// process, so that a reload of the configuration keeps them.
//
// Its lock guards the tickets, too. It is never held while an engine is called.
type keptTable struct {
	mu       sync.Mutex
	byID     map[ticketID]*keptTicket
	unproven map[waitingClient][]*keptTicket // whose cookies have not come back
	missed   missedCookies
	sweeping bool
	closed   bool // the process is exiting: nobody can come for a place
}

// ticketID is the secret in a browser's cookie.
type ticketID [16]byte

var keptTickets = &keptTable{
	byID:     make(map[ticketID]*keptTicket),
	unproven: make(map[waitingClient][]*keptTicket),
	missed:   missedCookies{byAgent: make(map[uint64][]*sentCookie)},
}

// keep puts a ticket into the table, and takes it off the request that watches it. It
// reports false if that request has to wait with its connection, because the ticket no
// longer waits, or because of its client: see [maxUnproven] and [sentCookie].
func (t *keptTable) keep(k *keptTicket, w chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.closed || k.state != keptWaiting || !t.passUnprovenLocked(k, now) || t.refusesLocked(k, now) {
		return false
	}
	_, _ = rand.Read(k.id[:]) // never fails
	k.kept, t.byID[k.id] = true, k
	k.contact, k.refresh = now, claimWindow // its request is still here, and takes a turn that comes before the page
	t.addUnprovenLocked(k, newSentCookie(now, k.refresh))
	t.unwatchLocked(k, w)
	k.meters.counts.kept.Add(1)
	if !t.sweeping {
		t.sweeping = true
		time.AfterFunc(sweepInterval, t.sweep)
	}
	return true
}

// find returns the ticket of a browser that came with a cookie for a queue, or nil. used
// says that its turn was claimed, and has not ended.
func (t *keptTable) find(id ticketID, queue waitingQueue) (k *keptTicket, used bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k = t.byID[id]
	if k == nil || k.queue != queue {
		return nil, false
	}
	if k.state == keptUsed {
		return nil, true
	}
	k.contact = time.Now()
	t.proveLocked(k)
	return k, false
}

// merge returns the better one of two tickets of a browser, and gives up the other. A
// browser has two if it has opened a second tab before the first one got its cookie.
func (t *keptTable) merge(one, other *keptTicket) *keptTicket {
	t.mu.Lock()
	if one.rankLocked() > other.rankLocked() || one.rankLocked() == other.rankLocked() && other.arrived.Before(one.arrived) {
		one, other = other, one
	}
	t.mu.Unlock()
	t.giveUp(other)
	return one
}

// rankLocked orders the tickets of a browser: the nearest to its turn first.
func (k *keptTicket) rankLocked() int {
	switch k.state {
	case keptReady:
		return 0
	case keptWaiting:
		return 1
	}
	return 2
}

// giveUp ends a ticket that its browser has no use for, unless it has just used it.
func (t *keptTable) giveUp(k *keptTicket) {
	t.mu.Lock()
	if k.state == keptUsed || k.state == keptOver {
		t.mu.Unlock()
		return
	}
	was := t.overLocked(k)
	t.mu.Unlock()
	k.countGone(was)
	k.end(was)
}

// expect notes when a browser will come back that is about to get the page, unless that
// becomes live. It reports false if the ticket waits no longer, so that there is no page
// to send.
func (t *keptTable) expect(k *keptTicket, refresh time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.state != keptWaiting {
		return false
	}
	k.contact, k.refresh, k.live = time.Now(), refresh, false
	if k.cookie != nil {
		k.cookie.given, k.cookie.back = k.contact, k.contact.Add(refresh)
	}
	return true
}

// overLocked ends a ticket in the table, and returns the state that it was in.
func (t *keptTable) overLocked(k *keptTicket) (was keptState) {
	was, k.state = k.state, keptOver
	k.stopTimerLocked()
	if k.kept {
		k.kept = false
		k.meters.counts.kept.Add(-1)
		delete(t.byID, k.id)
		if k.cookie != nil {
			t.removeUnprovenLocked(k)
		}
	}
	k.wakeLocked()
	return was
}

// browserOf says what the browser of a ticket does, for people; "" if it has no page.
func (t *keptTable) browserOf(k *keptTicket) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !k.kept:
		return ""
	case k.state == keptReady:
		return "waits for its browser"
	case len(k.watchers) > 0:
		return "live page"
	}
	return "page seen " + statuspage.Span(time.Since(k.contact).Seconds()) + " ago"
}

// sweepInterval is how often the table looks for browsers that have stopped coming.
const sweepInterval = 250 * time.Millisecond

// sweep ends the tickets of browsers that have stopped coming. It continues for as
// long as there are any tickets.
func (t *keptTable) sweep() {
	now := time.Now()
	t.mu.Lock()
	gone := make(map[*keptTicket]keptState)
	for _, k := range t.byID {
		if k.hasStayedAwayLocked(now) {
			t.rememberLocked(k, now)
			gone[k] = t.overLocked(k)
		}
	}
	if t.sweeping = len(t.byID) > 0; t.sweeping {
		time.AfterFunc(sweepInterval, t.sweep)
	}
	t.mu.Unlock()
	t.endAll(gone)
}

// hasStayedAwayLocked reports whether the browser has stopped coming. It has at least
// until the time at which it should come back.
func (k *keptTicket) hasStayedAwayLocked(now time.Time) bool {
	return (k.state == keptWaiting || k.state == keptRefused) && len(k.watchers) == 0 && now.Sub(k.contact) > max(k.hold, k.refresh+claimGrace)
}

// countGone counts a ticket whose browser has stopped coming.
func (k *keptTicket) countGone(was keptState) {
	outcome, reason := keptGivenUp, serializer.ReasonGone
	if was == keptRefused {
		outcome, reason = keptDenied, refusalOf(k.name, k.refusal).Reason
	}
	k.meters.countKept(outcome)
	k.meters.count(string(reason))
}

// close ends all tickets that wait for a browser, and keeps no more.
func (t *keptTable) close() {
	t.mu.Lock()
	t.closed = true
	gone := make(map[*keptTicket]keptState)
	for _, k := range t.byID {
		if k.state != keptUsed {
			gone[k] = t.overLocked(k)
		}
	}
	t.mu.Unlock()
	t.endAll(gone)
}

// endAll ends tickets that are over, and whose browsers have gone.
func (t *keptTable) endAll(gone map[*keptTicket]keptState) {
	for k, was := range gone {
		k.countGone(was)
		k.end(was)
	}
}
