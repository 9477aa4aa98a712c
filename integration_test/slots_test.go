//go:build unix

package integration_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// slottedSite is a site with a queue gpu_ that has slots; its upstream gets the request's.
func slottedSite(slots, options string) string {
	return "serialize_status /status\nserialize {\npath {$DIR}\nprefix gpu_\nslots " + slots + "\n" + options + "\n}\n" + slottedProxy
}

const slottedProxy = "reverse_proxy {$UPSTREAM} {\nheader_up X-Slot {http.serialize.slot}\n}"

// slotOf waits until a request is inside, and returns its slot.
func (c *caddy) slotOf(name string) string {
	c.t.Helper()
	c.awaitHit(name)
	return c.Hit(name).Header.Get("X-Slot")
}

// Each request inside has a slot for itself. Lists, log and page show it, and nothing shows the
// queues in which the slots are kept.
func TestSlots(t *testing.T) {
	t.Parallel()
	c := start(t, setup{global: "debug\nmetrics", env: map[string]string{"SLOT": "two"},
		site: slottedSite("one {env.SLOT}", "timeout 10m")})
	first, second := c.getting("/?name=first&gate"), c.getting("/?name=second&gate")
	slots := []string{c.slotOf("first"), c.slotOf("second")}
	third := c.getting("/?name=third&gate")
	q := c.awaitQueue("gpu_", 2, 1)
	if got := slices.Sorted(slices.Values(slots)); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("inside with %q", slots)
	}
	var listed []string
	for _, ticket := range q.Tickets {
		listed = append(listed, ticket.Slot)
	}
	if slices.Sort(listed); !slices.Equal(listed, []string{"", "one", "two"}) || q.Limit != 2 {
		t.Errorf("listed with %q, limit %d", listed, q.Limit)
	}
	c.wantStatus("slot one", "slot two")
	c.wantCommand(0, "inside, slot two", "queues")
	c.Open("first")
	c.wantServed(first)
	if got := c.slotOf("third"); got != slots[0] {
		t.Errorf("the next has %s; %s was free", got, slots[0])
	}
	if len(c.queues()) != 1 {
		t.Errorf("listed are %+v", c.queues())
	}
	c.OpenAll()
	c.wantServed(second, third)
	if text := c.Ask("/metrics") + c.Ask("/serialize/queues") + c.Log.String(); strings.Contains(text, "%=") {
		t.Errorf("a slot's queue is in\n%s", text)
	}
}

// A slot that a reload takes away is given to nobody, not even to those who wait already.
func TestReloadTakesSlotsAway(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: slottedSite("a b", "timeout 10m")})
	first := c.getting("/?name=first&gate")
	kept := c.slotOf("first")
	second := c.getting("/?name=second&gate")
	c.awaitHit("second")
	old := c.getting("/?name=old&gate")
	c.awaitQueue("gpu_", 2, 1)
	check(t, c.reload(setup{site: slottedSite(kept, "timeout 10m")}))
	c.Open("second")
	c.wantServed(second)
	c.awaitQueue("gpu_", 1, 1)
	wait.Until(t, "the next one waits for the slot", func() bool { return !c.queue("gpu_").Tickets[1].Entered.IsZero() })
	c.WantNever("old")
	c.Open("first")
	c.wantServed(first)
	if got := c.slotOf("old"); got != kept {
		t.Errorf("it has %s, which was taken away", got)
	}
	c.Open("old")
	c.wantServed(old)
}

// A reentrant request has the slot of the turn that it holds. An inner queue without slots, and
// an error route, do not hide it.
func TestSlotOfTheTurn(t *testing.T) {
	t.Parallel()
	const gpu = "serialize {\npath {$DIR}\nprefix gpu_\nslots a b\n}\n"
	c := start(t, setup{site: "route /error {\n" + gpu + "error 418\n}\nroute {\n" + gpu + "route {\n" + gpu +
		"serialize {\npath {$DIR}\nprefix inner_\n}\n" + slottedProxy + "\n}\n}\n" +
		"handle_errors {\nrespond \"had {http.serialize.slot}\" 418\n}"})
	for _, want := range []string{"a", "b", "a"} {
		c.get("/?name="+want).Want(t, http.StatusOK)
		if got := c.slotOf(want); got != want {
			t.Errorf("it has %q; expected %s", got, want)
		}
	}
	if a := c.get("/error"); a.Text != "had b" {
		t.Errorf("answered %v", a)
	}
	c.awaitTickets(0)
}
