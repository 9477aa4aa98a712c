package serialize

import (
	"slices"
	"time"
)

// waitingClient is a client's address in a queue.
type waitingClient struct {
	queue waitingQueue
	ip    string
}

func (k *keptTicket) client() waitingClient { return waitingClient{k.queue, k.request.ClientIP} }

// maxUnproven is how many tickets a client may have whose cookies have not come back.
// Otherwise, a program that drops cookies could fill the queue. Behind one address, as
// many browsers as that get their first page at once.
const maxUnproven = 50

// proofTime is how long those that look like a browser wait for its cookie to come back.
// A browser with JavaScript sends it at once.
const proofTime = 5 * time.Second

// backEarly and claimGrace bound how far from the announced time a browser comes back.
const backEarly = time.Second

// sentCookie is the cookie of a ticket, until it has come back. If it does not, its
// browser may refuse cookies. Then it comes again without one, and has to wait with an
// open connection, or it would never have a turn. Many browsers of one address look
// alike. So only those that come when it should come have to wait like that, or else the
// next one.
type sentCookie struct {
	given  time.Time // when the browser got the page
	back   time.Time // when it was to come again
	until  time.Time // when to forget it, once it is missed
	waited bool      // somebody waits instead of its browser, or has
	proven bool      // it has come back
}

// newSentCookie is the cookie of a page that is about to be sent.
func newSentCookie(now time.Time, refresh time.Duration) *sentCookie {
	return &sentCookie{given: now, back: now.Add(refresh)}
}

// isMissed reports whether the others that look the same wait no longer for a cookie.
func (c *sentCookie) isMissed(now time.Time) bool {
	return now.After(c.given.Add(min(c.back.Sub(c.given), proofTime) + claimGrace))
}

// isBack reports whether a browser came about when the one that got the cookie was to
// come.
func (c *sentCookie) isBack(arrived time.Time) bool {
	return arrived.After(c.given) && arrived.After(c.back.Add(-backEarly)) && arrived.Before(c.back.Add(claimGrace))
}

// passUnprovenLocked reports whether a ticket may be one of those of its client whose
// cookies are to come back. It may not while its browser may be one of theirs.
func (t *keptTable) passUnprovenLocked(k *keptTicket, now time.Time) bool {
	others, wait := t.unproven[k.client()], false
	for _, other := range others {
		switch c := other.cookie; {
		case c.isMissed(now):
			t.rememberLocked(other, now)
		case other.agent == k.agent && k.arrived.After(c.given):
			wait = true
			if k.waitsFor == nil && !c.waited && c.isBack(k.arrived) {
				k.waitForLocked(c)
			}
		}
	}
	return !wait && len(others) < maxUnproven
}

// addUnprovenLocked notes that a ticket's cookie is to come back.
func (t *keptTable) addUnprovenLocked(k *keptTicket, c *sentCookie) {
	k.cookie = c
	t.unproven[k.client()] = append(t.unproven[k.client()], k)
}

// removeUnprovenLocked notes that a ticket's cookie has come back, or need not.
func (t *keptTable) removeUnprovenLocked(k *keptTicket) {
	client := k.client()
	rest := slices.DeleteFunc(t.unproven[client], func(other *keptTicket) bool { return other == k })
	if t.unproven[client] = rest; len(rest) == 0 {
		delete(t.unproven, client)
	}
	k.cookie = nil
}

// proveLocked notes that a ticket's cookie has come back.
func (t *keptTable) proveLocked(k *keptTicket) {
	if c := k.cookie; c != nil {
		c.proven = true
		t.missed.remove(k.agent, c) // it came late
		t.removeUnprovenLocked(k)
	}
}
