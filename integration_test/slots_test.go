//go:build unix

package integration_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Each request inside has a slot for itself, in all processes. Lists, log and page show it, and nothing
// shows the queues in which the slots are kept. A slot that a reload takes away is given to nobody, not
// even to those who wait already.
func TestSlots(t *testing.T) {
	t.Parallel()
	site := func(slots string) string {
		return "serialize_status /status\n" + behindQueue("prefix gpu_\nslots "+slots)
	}
	c := start(t, setup{global: "debug\nmetrics", env: map[string]string{"SLOT": "two"}, site: site("one {env.SLOT}")})
	other := c.another()
	first := c.getting("/?name=first&gate")
	c.awaitHit("first")
	second := other.getting("/?name=second&gate")
	c.awaitHit("second")
	third := c.getting("/?name=third&gate")
	for _, process := range []*caddy{c, other} {
		q := process.awaitQueue("gpu_", 2, 1)
		if slots := []string{q.Tickets[0].Slot, q.Tickets[1].Slot, q.Tickets[2].Slot}; !slices.Equal(slots, []string{"one", "two", ""}) || q.Limit != 2 {
			t.Errorf("listed with %q, limit %d", slots, q.Limit)
		}
	}
	c.wantStatus("slot one", "slot two")
	c.wantCommand(0, "inside, slot two", "queues")

	check(t, c.reload(setup{global: "debug\nmetrics", site: site("one")}))
	c.Open("second")
	other.wantServed(second)
	c.awaitQueue("gpu_", 1, 1) // the next one waits for the slot
	c.WantNever("third")
	c.Open("first")
	c.wantServed(first)
	c.awaitHit("third")
	if queues := c.queues(); len(queues) != 1 || queues[0].Tickets[0].Slot != "one" {
		t.Errorf("listed are %+v", queues)
	}
	c.Open("third")
	c.wantServed(third)
	if text := c.Ask("/metrics") + c.Ask("/serialize/queues") + c.Log.String(); strings.Contains(text, "%=") {
		t.Errorf("a slot's queue is in\n%s", text)
	}
}

// A slot whose server is down, or answers errors at once, does not draw all who wait while the
// other two work.
func TestFailingSlot(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"down": "reverse_proxy 127.0.0.1:1", "errors": "respond 500"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: "route {\nserialize {\npath {$DIR}\nslots broken b c\n}\n" +
				"@broken vars {http.serialize.slot} broken\nhandle @broken {\n" + answer + "\n}\n" + "reverse_proxy {$UPSTREAM}\n}"})
			var all sync.WaitGroup
			for range 30 {
				all.Go(func() { c.get("/?work=20ms") })
			}
			if all.Wait(); len(c.Hits()) < 20 || len(c.Hits()) == 30 { // the others failed
				t.Errorf("%d of 30 requests were served", len(c.Hits()))
			}
		})
	}
}

// A reentrant request has the slot of the turn that it holds. An inner queue without slots, and
// an error route, do not hide it.
func TestSlotOfTheTurn(t *testing.T) {
	t.Parallel()
	const gpu = "serialize {\npath {$DIR}\nprefix gpu_\nslots a b\n}\n"
	c := start(t, setup{site: "route /error {\n" + gpu + "error 418\n}\nroute {\n" + gpu + "route {\n" + gpu +
		"serialize {\npath {$DIR}\nprefix inner_\n}\nrespond {http.serialize.slot}\n}\n}\n" +
		"handle_errors {\nrespond \"had {http.serialize.slot}\" 418\n}"})
	for _, want := range []string{"a", "b", "a"} {
		if got := c.get("/").Want(t, http.StatusOK).Text; got != want {
			t.Errorf("it has %q; expected %s", got, want)
		}
	}
	if a := c.get("/error"); a.Text != "had b" {
		t.Errorf("answered %v", a)
	}
	c.awaitTickets(0)
}
