package serialize

import (
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// settle notes how the ticket's wait has ended.
func (t *keptTable) settle(k *keptTicket, turn serializer.Turn, err error) {
	if err == nil {
		err = k.engine.checkRivals(k.name, turn)
	}
	now := time.Now()
	k.meters.endWait(&k.age, now.Sub(k.arrived))
	t.mu.Lock()
	k.turn = turn
	k.came, k.waited = now, now.Sub(k.arrived)
	if err == nil && k.revoked != nil {
		err = k.revocationLocked()
	}
	over := k.state == keptOver
	switch {
	case over:
	case err != nil:
		k.state, k.refusal = keptRefused, err
	default:
		k.state = keptReady
		k.meters.startIdle(&k.age, now)
		if k.kept { // else its request is there
			k.timer = time.AfterFunc(k.windowLocked(now), func() { t.miss(k) })
		}
	}
	k.wakeLocked()
	t.mu.Unlock()
	if !over && err == nil {
		return
	}
	if turn != nil {
		turn.Leave()
	}
	k.release()
}

// revocationLocked is the refusal of a ticket whose turn was revoked before it was
// claimed.
func (k *keptTicket) revocationLocked() error {
	return &serializer.Refused{Reason: serializer.ReasonOf(k.revoked), Queue: k.name, Token: k.turn.Token(), Err: k.revoked}
}

// revoke notes that the engine takes the turn back, and returns who has claimed it.
func (t *keptTable) revoke(k *keptTicket, cause error) *visit {
	t.mu.Lock()
	k.revoked = cause
	idle := k.state == keptReady
	if idle {
		k.state, k.refusal = keptRefused, k.revocationLocked()
		k.stopTimerLocked()
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

func (t *keptTable) stateOf(k *keptTicket) keptState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return k.state
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
	v.engine, v.space, v.turn, v.waited, v.entered = k.engine, k.engine.space, k.turn, k.waited, time.Now()
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
	if k.waitsFor != nil {
		k.waitsFor.waited = false // the next one may be that browser, with its page reloaded
	}
	t.mu.Unlock()
	k.end(was)
}

// miss ends a kept ticket whose browser did not come for its turn.
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

// claimWindow is how long a turn waits for a browser that follows its place live. A
// browser reloads its page within a tenth of a second. The rest is for slow networks.
const claimWindow = 2 * time.Second

// claimGrace is how much later than announced a browser without JavaScript may come.
const claimGrace = time.Second

// windowLocked is how long the turn waits for the browser. It does not wait for one that
// has never come back, and is late: a program may have many such tickets.
func (k *keptTicket) windowLocked(now time.Time) time.Duration {
	if len(k.watchers) > 0 || k.live {
		return claimWindow
	}
	late := claimGrace
	if k.cookie != nil {
		late = 0
	}
	return max(k.contact.Add(k.refresh+claimGrace).Sub(now), late)
}

// stopTimerLocked ends the wait for the browser. A ticket that was never kept has none.
func (k *keptTicket) stopTimerLocked() {
	if k.timer != nil {
		k.timer.Stop()
	}
}
