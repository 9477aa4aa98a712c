package statuspage

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Queues that need attention come first, and say why. Bug: the page sorted them by name.
// Bug: nothing said that a request was inside for longer than hold_timeout, and what was
// refused, while nobody waited.
func TestStatusJudges(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ago := func(age time.Duration) time.Time { return now.Add(-age) }
	inside := func(age time.Duration) serializer.TicketState {
		return serializer.TicketState{State: serializer.StateInside, Since: ago(age), Entered: ago(age)}
	}
	remote := func(age time.Duration) serializer.TicketState {
		return serializer.TicketState{State: serializer.StateInside, Since: ago(age)}
	}
	waits := func(age time.Duration) serializer.TicketState {
		return serializer.TicketState{State: serializer.StateWaiting, Since: ago(age)}
	}
	revoked := func(t serializer.TicketState, age time.Duration) serializer.TicketState {
		t.Revoked = ago(age)
		return t
	}
	held := func(t serializer.TicketState, more time.Duration) serializer.TicketState {
		t.HeldUntil = now.Add(more)
		return t
	}
	visit := func(t serializer.TicketState, latest time.Duration) serializer.TicketState {
		t.Requests, t.LastRequest = 9, ago(latest)
		return t
	}
	type tickets = []serializer.TicketState
	for _, c := range []struct {
		name    string
		tickets tickets
		length  int
		refused map[string]time.Time
		paused  bool
		err     string
		badge   string
		level   troubleLevel
		says    string
	}{
		{name: "idle"},
		{name: "a long hold that nobody waits for", tickets: tickets{inside(20 * time.Minute)}},
		{name: "short waits", tickets: tickets{inside(time.Second), waits(time.Second)}},
		{name: "stuck", tickets: tickets{inside(20 * time.Minute), waits(time.Minute), waits(time.Second)},
			badge: "stuck", level: badTrouble, says: "inside for 20m, while 2 wait."},
		{name: "revoked, and nobody waits", tickets: tickets{revoked(inside(100*time.Second), 40*time.Second)},
			badge: "stuck", level: badTrouble, says: "inside for 1m40s, revoked 40s ago: its turn ends when its handlers return. PHP"},
		{name: "held", tickets: tickets{held(revoked(inside(20*time.Minute), time.Second), 4*time.Second), waits(time.Second)}},
		{name: "a long visit", tickets: tickets{visit(inside(20*time.Minute), 10*time.Second), waits(time.Second)}},
		{name: "an idle visit", tickets: tickets{held(visit(inside(20*time.Minute), 4*time.Minute), time.Minute), waits(time.Second)}},
		// Bug: no visit was called stuck.
		{name: "a visit whose request hangs", tickets: tickets{visit(inside(20*time.Minute), 2*time.Minute), waits(time.Second)},
			badge: "stuck", level: badTrouble, says: "inside for 20m, a visit (requests: 9), the latest 2m ago, while 1 wait."},
		// Bug: a request of another process counted as inside since a minute after it came,
		// and may have waited until now.
		{name: "may have waited elsewhere", tickets: tickets{remote(time.Hour), waits(time.Second)}},
		{name: "full", tickets: tickets{inside(time.Second), waits(0), waits(0)}, length: 2, badge: "full", level: someTrouble, says: "2 wait"},
		{name: "refusing", refused: map[string]time.Time{"queue_full": ago(time.Second), "timeout": ago(time.Hour)},
			badge: "refusing", level: someTrouble, says: "Refused: queue_full 1s ago (3 since the start)."},
		{name: "failing", refused: map[string]time.Time{"storage": ago(4 * time.Minute)}, badge: "failing", level: badTrouble, says: "storage"},
		{name: "paused", tickets: tickets{waits(time.Minute)}, paused: true, badge: "paused", level: pausedQueue, says: "Paused until it is resumed"},
		// Bug: these looked like a queue that is too slow.
		{name: "full by a pause", tickets: tickets{waits(0)}, length: 1, paused: true, badge: "paused", level: someTrouble, says: "1 wait"},
		{name: "refusing by a pause", refused: map[string]time.Time{"timeout": ago(time.Second)}, paused: true,
			badge: "paused", level: someTrouble, says: "Refused: timeout 1s ago"},
		{name: "unreadable", err: "no such file", badge: "error", level: badTrouble, says: "cannot be read: no such file"},
	} {
		q := &Queue{Outcomes: make(map[string]*telemetry.Outcome)}
		q.QueueLength = c.length
		for reason, last := range c.refused {
			q.Outcomes[reason] = new(telemetry.Outcome)
			q.Outcomes[reason].Count.Store(3)
			q.Outcomes[reason].Refused.Store(last.UnixNano())
		}
		q.Tickets = c.tickets
		for _, ticket := range c.tickets {
			if ticket.State == serializer.StateInside {
				q.Inside++
			}
		}
		q.Waiting = len(c.tickets) - q.Inside
		if q.Error = c.err; c.paused {
			q.PausedUntil = &serializer.Forever
		}
		q.diagnose(now)
		if q.Badge != c.badge || q.level != c.level || (c.says == "") != (len(q.Trouble) == 0) || !strings.Contains(strings.Join(q.Trouble, " "), c.says) {
			t.Errorf("%s: %q, level %d, %q; expected %q, level %d, %q", c.name, q.Badge, q.level, q.Trouble, c.badge, c.level, c.says)
		}
		if headline := q.Headline(); !strings.Contains(headline, c.says) && q.Inside == 0 {
			t.Errorf("%s: the row says %q; expected %q", c.name, headline, c.says)
		}
	}
	named := func(prefix string, tickets ...serializer.TicketState) *Queue {
		q := new(Queue)
		q.Prefix, q.Tickets = prefix, tickets
		return q
	}
	data := New(now, []*Queue{named("a_"), named("b_", waits(5*time.Second)), named("c_", revoked(inside(time.Hour), time.Minute)), named("d_", waits(time.Second))}, "")
	order := ""
	for _, q := range data.Queues {
		order += q.Prefix
	}
	if order != "c_b_d_a_" || data.Troubled != 1 {
		t.Errorf("the order is %s, %d in trouble; expected c_b_d_a_, 1", order, data.Troubled)
	}
}

// Bug: queues that share the counts of a prefix said how many would have waited, without the numbers.
func TestDryRunWithoutCounts(t *testing.T) {
	q := new(Queue)
	q.DryRun = true
	page, err := Render(New(time.Now(), []*Queue{q}, ""))
	if err != nil || !strings.Contains(string(page), "Dry run: nobody waits.<") {
		t.Errorf("the page is %s, %v", page, err)
	}
}

// Bug: the place of a ticket on this page counted those inside, unlike that of the list and of
// the waiting page.
func TestStatusPlaces(t *testing.T) {
	q := new(Queue)
	for _, state := range []string{serializer.StateInside, serializer.StateWaiting, serializer.StateWaiting} {
		q.Tickets = append(q.Tickets, serializer.TicketState{State: state})
	}
	page, err := Render(New(time.Now(), []*Queue{q}, ""))
	var places []string
	for _, m := range regexp.MustCompile(`<td class="num">(.*?)</td>`).FindAllSubmatch(page, -1) {
		places = append(places, string(m[1]))
	}
	if got := strings.Join(places, " "); err != nil || got != "– 1 2" {
		t.Errorf("the places are %s (%v); expected none, 1 and 2", got, err)
	}
}
