package serialize

import (
	"hash/maphash"
	"maps"
	"time"
)

// waitingClient is a client's address in a queue. It has one ticket at a time whose
// cookie is to come back. Otherwise, a program that drops cookies could fill the
// queue by asking again.
type waitingClient struct {
	queue waitingQueue
	ip    string
}

func (k *keptTicket) client() waitingClient { return waitingClient{k.queue, k.request.ClientIP} }

// proofTime is how long the others of an address wait for a cookie to come back. A
// browser with JavaScript sends it at once.
const proofTime = 5 * time.Second

// passUnprovenLocked reports whether a ticket may be the one of its client whose cookie
// is to come back.
func (t *keptTable) passUnprovenLocked(k *keptTicket, now time.Time) bool {
	other := t.unproven[k.client()]
	if other == nil {
		return true
	}
	other.awaited = other.awaited || other.agent == k.agent && other.missed().isBack(k.arrived)
	if now.Before(other.contact.Add(min(other.refresh, proofTime) + claimGrace)) {
		return false
	}
	t.rememberLocked(other, now)
	other.unproven = false
	delete(t.unproven, k.client())
	return true
}

// proveLocked notes that a ticket's cookie has come back.
func (t *keptTable) proveLocked(k *keptTicket) {
	if k.unproven {
		k.unproven = false
		delete(t.unproven, k.client())
	}
	if k.remembered != nil && t.missed[k.agent] == k.remembered {
		delete(t.missed, k.agent) // it came late
	}
	k.remembered = nil
}

// missedCookie is remembered of a place whose cookie has not come back. Its browser may
// refuse cookies: then it comes again without a cookie, and has to wait with an open
// connection, or it would never have a turn. Many browsers of one address look alike. So
// only those that come when it should come have to wait like that, or else the next one.
type missedCookie struct {
	given  time.Time // when the browser got the page
	back   time.Time // when it was to come again
	until  time.Time // when to forget it
	waited bool      // somebody waits instead of it, or has
}

// Cookies that were missed are remembered for a time, and not too many of them.
const (
	missedTime = 10 * time.Minute
	maxMissed  = 10_000
)

// backEarly and claimGrace bound how far from the announced time a browser comes back.
const backEarly = time.Second

var agentSeed = maphash.MakeSeed()

// agentHash distinguishes the browsers in a queue, as far as that is possible without
// a cookie.
func agentHash(queue waitingQueue, ip, userAgent string) uint64 {
	return maphash.String(agentSeed, string(queue[:])+ip+"\x00"+userAgent)
}

// refusesLocked reports whether the ticket's browser may be one that refuses cookies.
func (t *keptTable) refusesLocked(k *keptTicket) bool {
	if k.waitsFor != nil {
		return true
	}
	if k.lost {
		return false // it has sent the cookie of its earlier place
	}
	m := t.missed[k.agent]
	if m == nil || time.Now().After(m.until) || !k.arrived.After(m.given) || m.waited && !m.isBack(k.arrived) {
		return false
	}
	m.waited, k.waitsFor = true, m
	return true
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
		k.remembered = k.missed()
		t.missed[k.agent] = k.remembered
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
