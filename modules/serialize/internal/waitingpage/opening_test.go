package waitingpage

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// opensIn is a line of the test's queue that opens after a time, and what it logs.
func (q *queue) opensIn(left time.Duration) (*Line, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return &Line{Opens: time.Now().Add(left), Report: &telemetry.Reporter{Counters: q.report.Counters, Logger: zap.New(core)}}, logs
}

// registers lets a browser come before the opening. The chance is whose it has; empty is its own.
func (q *queue) registers(o *Opening, chance string, proven bool) *Ticket {
	q.Helper()
	n := q.navigation(new(request))
	n.Opening, n.Chance = o, chance
	return q.waits(n, proven)
}

// line are the ids of the tickets in line, in order.
func (q *queue) line() (ids []string) {
	q.Helper()
	synctest.Wait()
	states, err := q.places.Queues(q.Context())
	must(q, err)
	for _, state := range states {
		for _, ticket := range state.Tickets {
			if t, ok := ticket.Requester.(*Ticket); ok {
				ids = append(ids, t.id)
			}
		}
	}
	return ids
}

// cookieMark is the end of the name of a browser's cookie.
func cookieMark(id string) string {
	r := caddyhttp.PrepareRequest(httptest.NewRequest("GET", "/", nil), caddy.NewReplacer(), nil, new(caddyhttp.Server))
	return strings.TrimPrefix(cookieName(r, id), cookiePrefix)
}

// placeAgain computes the places as the document says, from what is logged. It returns the hashes of
// the cookies, in order.
func placeAgain(t *testing.T, logs *observer.ObservedLogs) (cookies []string) {
	t.Helper()
	all := logs.All()
	list := make([]*lot, len(all)-2)
	for _, entry := range all[2:] {
		f := entry.ContextMap()
		n := int(f["number"].(int64))
		list[n-1] = &lot{cookie: f["cookie"].(string), chance: fmt.Sprint(f["value"]), number: n}
	}
	sum := number(list)
	if f := all[0].ContextMap(); int(f["number"].(int64)) != len(list) || f["sha256"] != sum {
		t.Errorf("the log has %v of a list of %d with the hash %s", f, len(list), sum)
	}
	order(list, all[1].ContextMap()["seed"].(string))
	for _, l := range list {
		cookies = append(cookies, l.cookie)
	}
	return cookies
}

// Those who have proven their cookies are drawn, then come the others of a shared chance, then those who
// have not, and then newcomers. The log shows how.
func TestOpeningDraws(t *testing.T) {
	const each = 20
	inQueue(t, func(q *queue, inside serializer.Turn) {
		line, logs := q.opensIn(8 * time.Second)
		o := q.Opening("a", line)
		kinds, tickets := make(map[string]string), make(map[string]*Ticket)
		for _, kind := range []struct {
			name, chance string
			proven       bool
		}{{"shared", "one", true}, {"unproven", "", false}, {"own", "", true}} {
			for range each {
				mine := q.registers(o, kind.chance, kind.proven)
				kinds[mine.id], tickets[mine.id] = kind.name, mine
			}
		}
		if line := q.line(); len(line) > 0 || q.Registered(q.Name()) != 3*each {
			q.Errorf("%d are in line before the opening, and %d registered", len(line), q.Registered(q.Name()))
		}
		time.Sleep(8 * time.Second)
		newcomer := q.registers(o, "one", true)
		kinds[newcomer.id] = "newcomer"
		order := q.line()
		count := make(map[string]int)
		for i, id := range order {
			count[kinds[id]]++
			want := map[bool]string{true: "drawn", false: "behind"}[i < each+1]
			if kinds[id] == "own" && want != "drawn" || i >= 2*each && i < 3*each && kinds[id] != "unproven" || i == 3*each && kinds[id] != "newcomer" {
				q.Errorf("place %d has a browser that is %s", i+1, kinds[id])
			}
		}
		if !maps.Equal(count, map[string]int{"own": each, "shared": each, "unproven": each, "newcomer": 1}) {
			q.Errorf("in line are %v", count)
		}
		again := placeAgain(t, logs)
		for i, id := range order {
			if mine := tickets[id]; i < len(again) && !strings.HasPrefix(again[i], cookieMark(id)) || mine != nil && mine.proven.Load() != (mine.listed > 0) {
				q.Errorf("place %d has a cookie that the log does not have there, or no number", i+1)
			}
		}
		inside.Leave()
	})
}

// Each order is as likely as any other, however many share a chance, and each of those who share it.
func TestDrawIsRandom(t *testing.T) {
	const draws = 24000
	count := make(map[string]int)
	for i := range draws {
		list := []*lot{{number: 1, value: 1}, {number: 2, value: 2}, {number: 3, value: 2}, {number: 4, value: 4}}
		order(list, fmt.Sprint("seed ", i))
		text := ""
		for _, l := range list {
			text += fmt.Sprint(l.number)
		}
		count[text]++
	}
	if len(count) != 12 { // six of the three values, with either 2 or 3
		t.Fatalf("orders %v", count)
	}
	for text, n := range count {
		if want := draws / 12.0; math.Abs(float64(n)-want) > 6*math.Sqrt(want) {
			t.Errorf("order %s came %d times; expected about %.0f", text, n, want)
		}
	}
}

// Before the opening, a browser is asked to come after a tenth of the time left, and spread over a
// second at the moment.
func TestNextAsk(t *testing.T) {
	for left, want := range map[time.Duration][2]time.Duration{
		24 * time.Hour: {mostAsk, mostAsk}, 10 * time.Minute: {time.Minute, time.Minute}, 5 * time.Second: {leastAsk, leastAsk},
		time.Second: {time.Second, 2 * time.Second}, -time.Second: {0, time.Second},
	} {
		seen := make(map[time.Duration]bool)
		for range 20 {
			next := nextAsk(left)
			if seen[next] = true; next < want[0] || next > want[1] {
				t.Errorf("with %v left: %v; expected %v to %v", left, next, want[0], want[1])
			}
		}
		if spread := want[0] != want[1]; spread != (len(seen) > 1) {
			t.Errorf("with %v left: %v", left, slices.Collect(maps.Keys(seen)))
		}
	}
}

// What a configuration says later counts: it moves the opening, or opens the queue at once. The list stays.
func TestOpeningMoves(t *testing.T) {
	for name, moves := range map[string][]struct{ after, left, open time.Duration }{
		"not":               {{0, time.Minute, time.Minute}},
		"the second before": {{59 * time.Second, time.Second, time.Minute}},
		"the second after":  {{61 * time.Second, -time.Second, time.Minute}},
		"later":             {{time.Second, 10 * time.Minute, 10*time.Minute + time.Second}},
		"earlier":           {{time.Second, time.Second, 2 * time.Second}},
		"into the past":     {{time.Second, -time.Hour, time.Second}},
		"out and in":        {{time.Second, -1, 0}, {5 * time.Minute, time.Minute, 6*time.Minute + time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			inQueue(t, func(q *queue, inside serializer.Turn) {
				line, _ := q.opensIn(time.Minute)
				begun, want := time.Now(), time.Minute
				mine := q.registers(q.Opening("a", line), "", true)
				for _, move := range moves {
					time.Sleep(move.after)
					next, _ := q.opensIn(move.left)
					if want = move.open; want == 0 {
						next = nil
					}
					q.MoveOpening("", "a", next)
				}
				for len(q.line()) == 0 && time.Since(begun) < time.Hour {
					time.Sleep(10 * time.Millisecond)
				}
				if opened := time.Since(begun); opened < want || opened > want+openingCheck && name != "the second after" {
					q.Errorf("it has opened after %v; expected %v", opened, want)
				}
				if mine.listed != 1 {
					q.Error("the list is lost")
				}
				inside.Leave()
			})
		})
	}
}

// A queue opens at each moment that a configuration has, also if nobody comes then. It stays open if the
// clock is set back.
func TestSecondOpening(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		for range 2 {
			line, _ := q.opensIn(time.Minute)
			o := q.Opening("a", line)
			q.MoveOpening("", "a", line)
			if place := q.registers(o, "", true).Place(); place.Ask != 0 {
				q.Errorf("a script is to ask after %v s; expected at once, since the answer is held", place.Ask)
			}
			time.Sleep(time.Minute)
			if line := q.line(); len(line) != 1 {
				q.Errorf("%d are in line; expected 1", len(line))
			}
			o.line = &Line{Opens: time.Now().Add(time.Hour)}
			o.opened = o.line.Opens
			if _, closed := o.Closed(); closed {
				q.Error("the queue is closed again")
			}
		}
		inside.Leave()
	})
}

// A browser that stays away leaves the list: without a proof within ten seconds, else after a
// quarter of an hour. Bug: if its page was to come again later, it had time until then. So a program without
// cookies that sent 4,000 requests a second took 2 GB. One that comes to the moment, as late as it was asked to, keeps its place, but for no longer
// than any other.
func TestRegisteredBrowserStaysAway(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		line, _ := q.opensIn(time.Hour)
		o := q.Opening("a", line)
		unproven := q.registers(o, "", false)
		unproven.Place()
		q.registers(o, "", true)
		here := q.registers(o, "", true)
		for after, want := range []int{3, 2, 2, 1} {
			time.Sleep([]time.Duration{0, 10 * time.Second, 14 * time.Minute, time.Minute}[after])
			if got := q.Registered(q.Name()); got != want {
				q.Errorf("%d are registered; expected %d", got, want)
			}
			q.want(here, errWaiting)
		}
		if q.ticketOf(unproven.id) != nil {
			q.Error("the page says that a place is lost which the browser did not have")
		}
		place := here.Place()
		if !place.Opens.Equal(line.Opens) || place.Number != 0 || place.next < 4*time.Minute || place.Ask == 0 {
			q.Errorf("place %+v", place)
		}
		q.MoveOpening("", "a", new(Line{Report: q.report}))
		time.Sleep(place.next + hold - time.Second)
		for _, want := range []int{1, 0} { // a second before its time is over, and a second after
			if line := q.line(); len(line) != want {
				q.Errorf("%d are in line; expected %d", len(line), want)
			}
			time.Sleep(2 * time.Second)
		}
		inside.Leave()
	})
}

// queue_length counts those who are registered. They have their places when it is reached.
func TestRegisteredBrowsersAreCounted(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		line, _ := q.opensIn(time.Minute)
		n := q.navigation(new(request))
		n.Opening, n.MaxWaiting = q.Opening("a", line), 3
		for i := range 4 {
			mine, err := q.join(q.Context(), n, "", true)
			if full := serializer.ReasonOf(err) == serializer.ReasonFull; full != (i == 3) {
				q.Errorf("browser %d: %v", i, err)
			} else if !full {
				mine.locked(mine.departLocked)
			}
		}
		q.places.Join(serializer.Arrival{Queue: "a"}, func(turn serializer.Turn, err error) { // as another process may
			if err == nil {
				turn.Leave()
			}
		})
		time.Sleep(time.Minute)
		if line := q.line(); len(line) != 3 {
			q.Errorf("%d are in line", len(line))
		}
		inside.Leave()
	})
}

// The cookie of a place that has ended, sent again and again, gives places whose turns wait for nobody.
func TestReplayedCookieProvesNothing(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		line, _ := q.opensIn(0)
		page, err := Load("", http.StatusServiceUnavailable, false, 0, time.Minute)
		must(t, err)
		n := q.navigation(new(request))
		n.Opening, n.Line.Page = q.Opening("a", line), page
		id := n.newID()
		for range 5 {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Accept", "text/html")
			r.AddCookie(&http.Cookie{Name: cookieName(r, id), Value: sign(id)})
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
			TakeCookies(r, r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any))
			if _, _, err := q.Wait(w, r, n); !errors.Is(err, ErrAnswered) {
				t.Fatalf("the browser gets no page: %v", err)
			}
		}
		if idle := q.idleAfter(inside); idle > 0 {
			t.Errorf("the queue was idle for %v for places whose cookies have not come back", idle)
		}
	})
}
