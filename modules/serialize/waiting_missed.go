package serialize

import (
	"hash/maphash"
	"slices"
	"time"
)

// Cookies that were missed are remembered for a time, and not too many of them.
const (
	missedTime = 10 * time.Minute
	maxMissed  = 10_000
)

var agentSeed = maphash.MakeSeed()

// agentHash distinguishes the browsers in a queue, as far as that is possible without
// a cookie.
func agentHash(queue waitingQueue, ip, userAgent string) uint64 {
	return maphash.String(agentSeed, string(queue[:])+ip+"\x00"+userAgent)
}

// missedCookies remembers cookies that did not come back.
type missedCookies struct {
	byAgent map[uint64][]*sentCookie // by agentHash
	oldest  []missedCookie           // in the order in which they are forgotten
}

type missedCookie struct {
	*sentCookie
	agent uint64
}

func (m *missedCookies) add(agent uint64, c *sentCookie, now time.Time) {
	for len(m.oldest) > 0 && now.After(m.oldest[0].until) {
		m.remove(m.oldest[0].agent, m.oldest[0].sentCookie)
	}
	if len(m.oldest) < maxMissed {
		c.until = now.Add(missedTime)
		m.byAgent[agent] = append(m.byAgent[agent], c)
		m.oldest = append(m.oldest, missedCookie{c, agent})
	}
}

func (m *missedCookies) remove(agent uint64, c *sentCookie) {
	if c.until.IsZero() {
		return // it is not there
	}
	if i := slices.Index(m.oldest, missedCookie{c, agent}); i == 0 {
		m.oldest = m.oldest[1:]
	} else if i > 0 {
		m.oldest = slices.Delete(m.oldest, i, i+1)
	}
	rest := slices.DeleteFunc(m.byAgent[agent], func(other *sentCookie) bool { return other == c })
	if m.byAgent[agent] = rest; len(rest) == 0 {
		delete(m.byAgent, agent)
	}
}

// find returns the cookie that a browser may have got and refused, or nil. It prefers one
// for which the browser comes in time, and for which nobody else waits.
func (m *missedCookies) find(k *keptTicket, now time.Time) (found *sentCookie) {
	for _, c := range m.byAgent[k.agent] {
		back := c.isBack(k.arrived)
		switch {
		case now.After(c.until), !k.arrived.After(c.given), c.waited && !back:
		case back && !c.waited:
			return c
		case found == nil:
			found = c
		}
	}
	return found
}

// waitForLocked notes that a ticket's browser waits instead of one that got a cookie.
func (k *keptTicket) waitForLocked(c *sentCookie) { c.waited, k.waitsFor = true, c }

// refusesLocked reports whether the ticket's browser may be one that refuses cookies.
func (t *keptTable) refusesLocked(k *keptTicket, now time.Time) bool {
	if k.waitsFor != nil && !k.waitsFor.proven {
		return true
	}
	if k.lost {
		return false // it has sent the cookie of its earlier place
	}
	c := t.missed.find(k, now)
	if c == nil {
		return false
	}
	k.waitForLocked(c)
	return true
}

// rememberLocked remembers a ticket whose cookie has not come back.
func (t *keptTable) rememberLocked(k *keptTicket, now time.Time) {
	if c := k.cookie; c != nil && c.until.IsZero() {
		t.missed.add(k.agent, c, now)
	}
}
