package serialize

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// remote is a store with the tickets of another process.
type remote struct {
	*memory.Store
	tickets []*serializer.Ticket
}

func (s remote) Follow(events serializer.Events) {
	s.Store.Follow(events)
	for _, t := range s.tickets {
		events.Appeared(t)
	}
}

// Bug: whatever the queue's timeout was, a request of another process counted as inside
// since a minute after it came. One that had waited for longer made the queue look stuck.
func TestStatusKnowsTheTimeout(t *testing.T) {
	const path, queue = "/timeout", "anna_"
	for _, c := range []struct {
		name, prefix string
		timeouts     []time.Duration // of the handlers with the prefix
		badge        string
	}{
		{"short", queue, []time.Duration{time.Minute}, "stuck"},
		{"long", queue, []time.Duration{time.Hour}, ""},
		{"different", queue, []time.Duration{time.Hour, time.Minute}, ""},
		{"none", queue, []time.Duration{0, time.Minute}, ""},
		{"short, of a prefix with placeholders", "{user}_", []time.Duration{time.Minute}, "stuck"},
		{"long, of a prefix with placeholders", "{user}_", []time.Duration{time.Hour}, ""},
		{"not known", "other_", []time.Duration{time.Minute}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			share(t, "test:timeout", remote{inMemory(path), []*serializer.Ticket{
				{Queue: queue, Number: 1, Arrived: time.Now().Add(-10 * time.Minute)},
				{Queue: queue, Number: 2, Arrived: time.Now()},
			}})
			for _, timeout := range c.timeouts {
				t.Cleanup(openStats(c.prefix, prefixUse{path: path, timeout: timeout}, newMeters(metrics(), c.prefix)))
			}
			queues := statusQueues(t.Context(), time.Now())
			i := slices.IndexFunc(queues, func(q *statuspage.Queue) bool { return q.Prefix == queue && q.Path == path })
			if i < 0 {
				t.Fatalf("%s is not listed", queue)
			}
			if got := queues[i]; got.Badge() != c.badge {
				t.Errorf("the queue is %q, %q; expected %q", got.Badge(), got.Trouble, c.badge)
			}
		})
	}
}

// A page of very many queues stays small, and says what it leaves out.
func TestStatusOfVeryManyQueues(t *testing.T) {
	shared := share(t, "test:many", inMemory("/many"))
	for i := range 1000 {
		shared.configure(configuredQueue{name: "tenant_" + strconv.Itoa(i) + "_", limit: 1}, 1)
	}
	turn, err := shared.Enter(context.Background(), serializer.Arrival{Queue: "tenant_999_"})
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Leave()
	const most = 200 // queues on the page
	data := new(Status).collect(t.Context(), time.Now(), "TENANT")
	if data.Found != 1000 || len(data.Queues) != most || data.Omitted != 1000-most || data.Queues[0].Prefix != "tenant_999_" {
		t.Errorf("%d found, %d shown, %d omitted, the first is %s", data.Found, len(data.Queues), data.Omitted, data.Queues[0].Prefix)
	}
	page, err := statuspage.Render(data, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(page) > 512<<10 || !strings.Contains(string(page), "Only the first 200 are shown") {
		t.Errorf("the page has %d bytes", len(page))
	}
	t.Logf("the page has %d bytes", len(page))
	if found := new(Status).collect(t.Context(), time.Now(), "t_999_").Found; found != 1 {
		t.Errorf("the filter finds %d queues; expected 1", found)
	}
}
