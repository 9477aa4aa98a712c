package serialize

import (
	"crypto/rand"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// keptTable holds the tickets that wait for their browsers. There is one in a
// process, so that a reload of the configuration keeps them.
//
// Its lock guards the tickets, too. It is never held while an engine is called.
type keptTable struct {
	mu       sync.Mutex
	byID     map[ticketID]*keptTicket
	unproven map[waitingClient]*keptTicket
	missed   map[uint64]*missedCookie // by agentHash
	sweeping bool
	closed   bool // the process is exiting: nobody can come for a place
}

// ticketID is the secret in a browser's cookie.
type ticketID [16]byte

// waitingClient is a client's address in a queue. It has at most one ticket whose
// cookie has not come back yet: else a program that drops cookies could fill the queue
// by asking again.
type waitingClient struct {
	queue waitingQueue
	ip    string
}

var keptTickets = &keptTable{
	byID:     make(map[ticketID]*keptTicket),
	unproven: make(map[waitingClient]*keptTicket),
	missed:   make(map[uint64]*missedCookie),
}

// missedCookie is remembered of a place whose cookie has not come back. Its browser
// may refuse cookies: then it comes again as a stranger, and has to wait with an open
// connection, or it would never have a turn. Many browsers of one address look alike,
// so only those wait for it that came when it was to come; else the next one.
type missedCookie struct {
	given  time.Time // when the browser got the page
	back   time.Time // when it was to come again
	until  time.Time // when to forget it
	waited bool      // somebody waits for it, or has
}

// Cookies that were missed are remembered for a time, and not too many of them.
const (
	missedTime = 10 * time.Minute
	maxMissed  = 10_000
)

// backEarly and claimGrace bound how far from the time it was told a browser comes back.
const backEarly = time.Second

var agentSeed = maphash.MakeSeed()

// agentHash tells the browsers in a queue apart, as far as that can be done without a
// cookie.
func agentHash(queue waitingQueue, ip, userAgent string) uint64 {
	return maphash.String(agentSeed, string(queue[:])+ip+"\x00"+userAgent)
}

// watch returns a channel that gets a message when the ticket changes, until unwatch.
// While somebody watches, the browser is there. seen is when its user last looked.
func (t *keptTable) watch(k *keptTicket, seen time.Time) chan struct{} {
	w := make(chan struct{}, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	k.watchers = append(k.watchers, keptWatcher{w, seen})
	slices.SortStableFunc(k.watchers, func(a, b keptWatcher) int { return a.seen.Compare(b.seen) })
	k.live = k.kept // a request that waits for its first page watches, too
	if k.state != keptWaiting {
		w <- struct{}{}
	}
	if k.state == keptReady && !k.delayed && k.timer != nil {
		k.delayed = true // once: however often it comes back, the others wait
		k.timer.Reset(claimWindow)
	}
	return w
}

// passOnDelay is how long the other tabs of a browser wait after the one that was to
// claim the turn has closed its stream, which it also does when it claims.
const passOnDelay = 500 * time.Millisecond

func (t *keptTable) unwatch(k *keptTicket, w chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unwatchLocked(k, w)
	if k.state == keptReady && len(k.watchers) > 0 {
		time.AfterFunc(passOnDelay, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			k.wakeLocked()
		})
	}
}

func (t *keptTable) unwatchLocked(k *keptTicket, w chan struct{}) {
	k.watchers = slices.DeleteFunc(k.watchers, func(o keptWatcher) bool { return o.changed == w })
	k.contact = time.Now()
}

// look returns the ticket's state, and whether a watcher is the one to claim the turn:
// the one that was looked at last.
func (t *keptTable) look(k *keptTicket, w chan struct{}) (state keptState, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return k.state, len(k.watchers) > 0 && k.watchers[len(k.watchers)-1].changed == w
}

// settle notes how the ticket's wait has ended.
func (t *keptTable) settle(k *keptTicket, err error) {
	now := time.Now()
	k.meters.endWait(&k.age, now.Sub(k.arrived))
	t.mu.Lock()
	k.came, k.waited = now, now.Sub(k.arrived)
	if err == nil && k.revoked != nil {
		err = k.revocationLocked()
	}
	entered := k.local.entered
	over := k.state == keptOver
	switch {
	case over:
	case err != nil:
		k.state, k.refusal = keptRefused, err
	default:
		k.state = keptReady
		k.meters.startIdle(&k.age, now)
		k.timer = time.AfterFunc(k.windowLocked(now), func() { t.miss(k) })
	}
	k.wakeLocked()
	t.mu.Unlock()
	if !over && err == nil {
		return
	}
	if entered {
		k.local.Leave()
	}
	k.release()
}

// revocationLocked is the refusal of a ticket whose turn was revoked before it was
// claimed.
func (k *keptTicket) revocationLocked() error {
	return &serializer.Refused{Reason: serializer.ReasonOf(k.revoked), Queue: k.name, Token: k.local.Token(), Err: k.revoked}
}

// revoke notes that the engine takes the turn back, and returns who has claimed it.
func (t *keptTable) revoke(k *keptTicket, cause error) *visit {
	t.mu.Lock()
	k.revoked = cause
	idle := k.state == keptReady
	if idle {
		k.state, k.refusal = keptRefused, k.revocationLocked()
		k.timer.Stop()
		k.contact = time.Now() // the browser has time to learn of it
		k.wakeLocked()
	}
	claimant := k.claimant
	t.mu.Unlock()
	if idle {
		go k.end(keptReady) // the engine calls, and must not be called
	}
	return claimant
}

// revocation is why the engine has taken the turn back, or nil.
func (t *keptTable) revocation(k *keptTicket) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return k.revoked
}

func (t *keptTable) claimant(k *keptTicket) *visit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return k.claimant
}

// keep puts a ticket into the table, and takes it off the request that watches it. It
// reports false where that request has to wait with its connection, because the ticket
// no longer waits, or because of its client: see [waitingClient].
func (t *keptTable) keep(k *keptTicket, w chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	client := waitingClient{k.queue, k.request.ClientIP}
	if t.closed || k.state != keptWaiting || t.refusesLocked(k) {
		return false
	}
	if other := t.unproven[client]; other != nil {
		other.awaited = other.awaited || other.agent == k.agent && other.missed().isBack(k.arrived)
		return false
	}
	_, _ = rand.Read(k.id[:]) // never fails
	k.kept, k.unproven = true, true
	t.byID[k.id], t.unproven[client] = k, k
	t.unwatchLocked(k, w)
	k.meters.counts.kept.Add(1)
	if !t.sweeping {
		t.sweeping = true
		time.AfterFunc(sweepInterval, t.sweep)
	}
	return true
}

// refusesLocked reports whether the ticket's browser may be one that refuses cookies.
func (t *keptTable) refusesLocked(k *keptTicket) bool {
	m := t.missed[k.agent]
	if k.open || m == nil || time.Now().After(m.until) || !k.arrived.After(m.given) {
		return k.open
	}
	k.open = !m.waited || m.isBack(k.arrived)
	m.waited = true
	return k.open
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
	if k.unproven {
		k.unproven = false
		delete(t.unproven, waitingClient{k.queue, k.request.ClientIP})
	}
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

// giveUp ends a ticket that its browser has no use for.
func (t *keptTable) giveUp(k *keptTicket) {
	t.mu.Lock()
	was := t.overLocked(k)
	t.mu.Unlock()
	if was == keptUsed || was == keptOver {
		return
	}
	k.countGone(was)
	k.end(was)
}

// expect notes when a browser will come back that gets the page, unless that becomes live.
func (t *keptTable) expect(k *keptTicket, refresh time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.refresh, k.live = refresh, false
}

// overLocked ends a ticket in the table, and returns the state that it was in.
func (t *keptTable) overLocked(k *keptTicket) (was keptState) {
	was, k.state = k.state, keptOver
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.kept {
		k.kept = false
		k.meters.counts.kept.Add(-1)
		delete(t.byID, k.id)
		if k.unproven {
			delete(t.unproven, waitingClient{k.queue, k.request.ClientIP})
		}
	}
	k.wakeLocked()
	return was
}

// isOver reports whether a ticket has ended without a claim.
func (t *keptTable) isOver(k *keptTicket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return k.state == keptOver
}

// claim gives the turn to a visit, if it has come.
func (t *keptTable) claim(k *keptTicket, v *visit) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.state != keptReady {
		return false
	}
	kept := k.kept
	t.overLocked(k)
	k.state = keptUsed
	if kept {
		t.byID[k.id] = k // until its browser has the answer
	}
	k.meters.endIdle(&k.age)
	k.claimant = v
	v.engine, v.space, v.turn, v.waited, v.entered = k.engine, k.engine.space, &k.local, k.waited, time.Now()
	v.idle = v.entered.Sub(k.came)
	if kept {
		k.meters.countKept(keptClaimed)
		k.meters.idled(v.idle)
	}
	return true
}

// forget removes a ticket whose turn was claimed, and has ended.
func (t *keptTable) forget(k *keptTicket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[k.id] == k {
		delete(t.byID, k.id)
	}
}

// takeRefusal returns why the queue has refused the ticket, if it has, and ends it.
func (t *keptTable) takeRefusal(k *keptTicket, v *visit) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.state != keptRefused {
		return nil
	}
	if k.kept {
		k.meters.countKept(keptDenied)
	}
	t.overLocked(k)
	v.waited = k.waited
	return k.refusal
}

// abandon ends a ticket whose client has gone before it got the page.
func (t *keptTable) abandon(k *keptTicket) {
	t.mu.Lock()
	was := t.overLocked(k)
	t.mu.Unlock()
	k.end(was)
}

// miss ends a ticket whose browser did not come for its turn.
func (t *keptTable) miss(k *keptTicket) {
	t.mu.Lock()
	if k.state != keptReady {
		t.mu.Unlock()
		return
	}
	t.rememberLocked(k, time.Now())
	t.overLocked(k)
	t.mu.Unlock()
	k.meters.countKept(keptMissed)
	k.meters.count(string(serializer.ReasonGone))
	k.end(keptReady)
}

// sweepInterval is how often the table looks for browsers that have stopped coming.
const sweepInterval = 250 * time.Millisecond

// sweep ends the tickets of browsers that have stopped coming. It goes on for as long
// as there are any tickets.
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

// hasStayedAwayLocked reports whether the browser has stopped coming. It has at least the
// time until it was told to come.
func (k *keptTicket) hasStayedAwayLocked(now time.Time) bool {
	return (k.state == keptWaiting || k.state == keptRefused) && len(k.watchers) == 0 && now.Sub(k.contact) > max(k.hold, k.refresh+claimGrace)
}

// countGone counts a ticket whose browser has stopped coming.
func (k *keptTicket) countGone(was keptState) {
	outcome, reason := keptGivenUp, serializer.ReasonGone
	if refused, ok := errors.AsType[*serializer.Refused](k.refusal); ok && was == keptRefused {
		outcome, reason = keptDenied, refused.Reason
	}
	k.meters.countKept(outcome)
	k.meters.count(string(reason))
}

// rememberLocked remembers a ticket whose cookie has not come back.
func (t *keptTable) rememberLocked(k *keptTicket, now time.Time) {
	if !k.unproven {
		return
	}
	if len(t.missed) >= maxMissed {
		maps.DeleteFunc(t.missed, func(_ uint64, m *missedCookie) bool { return now.After(m.until) })
	}
	if len(t.missed) < maxMissed {
		t.missed[k.agent] = k.missed()
	}
}

// missed is what to remember of a ticket whose cookie does not come back.
func (k *keptTicket) missed() *missedCookie {
	return &missedCookie{given: k.contact, back: k.contact.Add(k.refresh), until: time.Now().Add(missedTime), waited: k.awaited}
}

// isBack reports whether a browser came about when the one that missed was to come.
func (m *missedCookie) isBack(arrived time.Time) bool {
	return arrived.After(m.given) && arrived.After(m.back.Add(-backEarly)) && arrived.Before(m.back.Add(claimGrace))
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
