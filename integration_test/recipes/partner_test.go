package recipes

import (
	"regexp"
	"testing"
)

const partner = "Ten calls a minute before a partner's interface"

// evictFirst evicts the first ticket of a queue.
func (k *kitchen) evictFirst(t *testing.T, queue string) {
	t.Helper()
	token := regexp.MustCompile(`"prefix":"` + queue + `".*?"token":"(\d+)"`).FindStringSubmatch(k.Ask("/serialize/queues"))[1]
	k.run(t, "caddy serialize evict --force --prefix "+queue+" "+token)
}

// Two calls may begin in a minute. They are answered at once, and the third one waits.
func TestCallsInAMinute(t *testing.T) {
	k := cook(t, partner, "concurrency 10", "concurrency 2")
	first, second := k.get(t, "0"), k.get(t, "1")
	k.awaitTickets(t, "partner_", 2)
	third := k.get(t, "2")
	k.awaitTickets(t, "partner_", 3)
	k.Follow("+0 1", "-0 1")
	want(t, first, 200, "served 0")
	want(t, second, 200, "served 1")
	k.Nobody()
	k.evictFirst(t, "partner_")
	k.Next("2").Leave()
	want(t, third, 200, "served 2")
}

// With two lines, a call also waits until the one before it has been answered.
func TestCallsInAMinuteOneAtATime(t *testing.T) {
	k := cookText(t, blocks(t, "recipes.md", partner, "caddyfile")[1], "concurrency 10", "concurrency 2")
	first := k.get(t, "0")
	inside := k.Next("0")
	second := k.get(t, "1")
	k.awaitTickets(t, "partner_0", 2)
	k.Nobody()
	inside.Leave()
	inside = k.Next("1")
	third := k.get(t, "2")
	k.awaitTickets(t, "partner_0", 2)
	inside.Leave()
	want(t, first, 200, "served 0")
	want(t, second, 200, "served 1")
	k.awaitTickets(t, "partner_pace_", 3)
	k.Nobody()
	k.evictFirst(t, "partner_pace_")
	k.Next("2").Leave()
	want(t, third, 200, "served 2")
}
