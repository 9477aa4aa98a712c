package statuspage

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Queues that need attention come first. Bug: the page sorted them by name.
func TestStatusJudges(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	inside := func(age time.Duration) serializer.TicketState {
		return serializer.TicketState{State: serializer.StateInside, Since: now.Add(-age), Entered: now.Add(-age)}
	}
	remote := func(age time.Duration) serializer.TicketState {
		return serializer.TicketState{State: serializer.StateInside, Since: now.Add(-age)}
	}
	waits := func(age time.Duration) serializer.TicketState {
		return serializer.TicketState{State: serializer.StateWaiting, Since: now.Add(-age)}
	}
	for _, c := range []struct {
		name            string
		tickets         []serializer.TicketState
		timeout         time.Duration
		length          int
		failed, refused int64
		refusedNow      int64
		badge           string
		level           troubleLevel
		says            string
	}{
		{name: "idle"},
		{name: "a long hold that nobody waits for", tickets: []serializer.TicketState{inside(20 * time.Minute)}},
		{name: "short waits", tickets: []serializer.TicketState{inside(time.Second), waits(time.Second)}},
		{name: "stuck", tickets: []serializer.TicketState{inside(20 * time.Minute), waits(time.Minute), waits(time.Second)},
			badge: "stuck", level: badTrouble, says: "A request has been inside for 20 min while 2 wait."},
		{name: "stuck elsewhere", tickets: []serializer.TicketState{remote(20 * time.Minute), waits(time.Second)}, timeout: time.Minute,
			badge: "stuck", level: badTrouble, says: "A request has been inside for 19 min while another one waits."},
		{name: "may have waited elsewhere", tickets: []serializer.TicketState{remote(100 * time.Second), waits(time.Second)}, timeout: time.Minute},
		{name: "may have waited for long elsewhere", tickets: []serializer.TicketState{remote(5 * time.Minute), waits(time.Second)}, timeout: 10 * time.Minute},
		{name: "may have waited elsewhere for any time", tickets: []serializer.TicketState{remote(time.Hour), waits(time.Second)}},
		{name: "slow", tickets: []serializer.TicketState{inside(time.Second), waits(31 * time.Second)}, badge: "slow", level: someTrouble, says: "31 s"},
		{name: "full", tickets: []serializer.TicketState{inside(time.Second), waits(0), waits(0)}, length: 2, badge: "full", level: someTrouble, says: "2 wait"},
		{name: "refusing", refused: 3, refusedNow: 1, badge: "refusing", level: someTrouble, says: "A request was refused in the last minute."},
		{name: "refused", refused: 3, level: pastTrouble, says: "3 requests were refused in the last 10 minutes."},
		{name: "failing", refused: 3, failed: 3, badge: "failing", level: badTrouble, says: "storage"},
	} {
		var state serializer.QueueState
		for _, ticket := range c.tickets {
			state.Add(ticket, serializer.Rule{})
		}
		q := NewQueue(queueapi.Queue{QueueState: state}, now, c.timeout)
		q.QueueLength, q.Failed, q.Refused, q.refusedNow = c.length, c.failed, c.refused, c.refusedNow
		q.Diagnose()
		if q.badge != c.badge || q.level != c.level || (c.says == "") != (len(q.Trouble) == 0) || !strings.Contains(strings.Join(q.Trouble, " "), c.says) {
			t.Errorf("%s: %q, level %d, %q; expected %q, level %d, %q", c.name, q.badge, q.level, q.Trouble, c.badge, c.level, c.says)
		}
	}
	queues := []*Queue{{Prefix: "a_"}, {Prefix: "b_", Waiting: 1, OldestWaiting: 5}, {Prefix: "c_", level: badTrouble}, {Prefix: "d_", Waiting: 9, OldestWaiting: 1}}
	slices.SortStableFunc(queues, byTrouble)
	order := ""
	for _, q := range queues {
		order += q.Prefix
	}
	if order != "c_b_d_a_" {
		t.Errorf("the order is %s; expected c_b_d_a_", order)
	}
}

func TestStatusTexts(t *testing.T) {
	for _, c := range []struct {
		seconds float64
		want    string
	}{
		{0, "0 ms"}, {.0123, "12 ms"}, {.9999, "1 s"}, {1.25, "1.2 s"}, {9.99, "10 s"}, {42, "42 s"}, {59.7, "1 min"},
		{90, "1.5 min"}, {1200, "20 min"}, {3599, "1 h"}, {5400, "1.5 h"}, {86_400, "24 h"}, {900_000, "10 days"},
	} {
		if got := Span(c.seconds); got != c.want {
			t.Errorf("%v seconds are %q; expected %q", c.seconds, got, c.want)
		}
	}
	for n, want := range map[int]string{0: "0", 99_999: "99999", 123_456: "123k", 2_340_000: "2.3M"} {
		if got := countText(n); got != want {
			t.Errorf("%d is %q; expected %q", n, got, want)
		}
	}
	for ms, want := range map[float64]float64{0: 1, 1: 1, 1.5: 2, 4: 5, 6: 10, 31: 50, 1_000_001: 2_000_000} {
		if got := roundUp(ms); got != want {
			t.Errorf("%v is rounded up to %v; expected %v", ms, got, want)
		}
	}
}

// Text has a contrast of at least 4.5, and drawings have one of 3. Bug: the bars
// of the longest waits were too pale, which axe does not find, because it checks
// text only.
func TestStatusContrast(t *testing.T) {
	light, dark, ok := strings.Cut(statusCSS, "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("there are no dark colors")
	}
	for name, text := range map[string]string{"light": light, "dark": dark} {
		colors := make(map[string]string)
		for _, m := range regexp.MustCompile(`--([a-z]+): #([0-9a-f]{6})`).FindAllStringSubmatch(text, -1) {
			colors[m[1]] = m[2]
		}
		for color, least := range map[string]float64{
			"text": 4.5, "soft": 4.5, "inside": 4.5, "waiting": 4.5, "refused": 4.5, "link": 4.5, "mean": 3, "longest": 3, "edge": 3,
		} {
			for _, ground := range []string{"card", "ground"} {
				if got := contrast(t, colors[color], colors[ground]); got < least {
					t.Errorf("%s: %s on %s has a contrast of %.2f; expected %.1f", name, color, ground, got, least)
				}
			}
		}
	}
}

// contrast is that of the Web Content Accessibility Guidelines, 1 to 21.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(color string) (l float64) {
		n, err := strconv.ParseUint(color, 16, 32)
		if err != nil {
			t.Fatalf("color %q: %v", color, err)
		}
		for i, weight := range []float64{.0722, .7152, .2126} { // from blue to red
			part := float64(n>>(8*i)&255) / 255
			if part <= .04045 {
				part /= 12.92
			} else {
				part = math.Pow((part+.055)/1.055, 2.4)
			}
			l += weight * part
		}
		return l
	}
	one, other := luminance(a), luminance(b)
	return (max(one, other) + .05) / (min(one, other) + .05)
}
