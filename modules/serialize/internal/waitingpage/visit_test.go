package waitingpage

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
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

var visits = Visits{Idle: time.Minute, Longest: time.Hour}

// visitOf is what a browser asks of a queue whose turns are visits.
func (q *queue) visitOf(r *request) *Navigation {
	n := q.navigation(r)
	n.Line.Visits, n.Line.Capacity = &visits, 1
	return n
}

// visits lets a browser with a cookie begin its visit.
func (q *queue) visits(r *request) (*Ticket, *Part) {
	q.Helper()
	n := q.visitOf(r)
	t, err := q.join(q.Context(), n, "browser", true)
	must(q, err)
	t.await(q.Context(), time.Second)
	_, err = t.claim(n)
	t.locked(t.departLocked)
	if err != nil || n.Part == nil {
		q.Fatalf("no visit begins: %v", err)
	}
	return t, n.Part
}

func (t *Ticket) part(visits *Visits, revoke func(error)) (p *Part) {
	t.locked(func() { p = t.partLocked(visits, revoke) })
	return p
}

// inside is how many are inside the queue.
func (q *queue) inside() int {
	synctest.Wait()
	inside, _ := q.places.Count("a")
	return inside
}

func (q *queue) wantInside(want int, when string) {
	q.Helper()
	if got := q.inside(); got != want {
		q.Errorf("%s, %d are inside; expected %d", when, got, want)
	}
}

// A visit ends when it has been idle for long enough, which counts from the end of the last of
// its requests.
func TestVisitIsIdle(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		core, logs := observer.New(zapcore.DebugLevel)
		q.report.Logger = zap.New(core)
		inside.Leave()
		mine, first := q.visits(new(request))
		upload := mine.part(&visits, func(error) {})
		first.Leave()
		first.Leave()
		time.Sleep(30 * time.Minute)
		q.wantInside(1, "during an upload")
		upload.Leave()
		time.Sleep(visits.Idle - time.Second)
		next := mine.part(&visits, func(error) {})
		if next == nil {
			q.Fatal("the visit has ended before its time")
		}
		next.Leave()
		if requests, last, _ := mine.Visited(); requests != 3 || !last.Equal(time.Now()) {
			q.Errorf("%d requests, the last %v", requests, last)
		}
		time.Sleep(visits.Idle - time.Second)
		q.wantInside(1, "before idle has passed")
		time.Sleep(time.Second)
		q.wantInside(0, "after idle has passed")
		if ended := logs.FilterMessage("visit ended"); ended.Len() != 1 { // bug: no log said so
			q.Errorf("the log has %v", logs.All())
		}
		if mine.part(&visits, func(error) {}) != nil {
			q.Error("a request passes by a visit that has ended")
		}
	})
}

// At its longest, a visit lets no new request pass. Those under way end in peace.
func TestLongestVisit(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		inside.Leave()
		claims := new(request)
		mine, first := q.visits(claims)
		time.Sleep(visits.Longest)
		if mine.part(&visits, func(error) {}) != nil {
			q.Error("a request passes after the longest visit")
		}
		q.wantInside(1, "while a request is under way")
		first.Leave()
		q.wantInside(0, "after it")
		if cause := claims.revoked.Load(); cause != nil {
			q.Errorf("it was cancelled: %v", cause)
		}

		mine, first = q.visits(new(request))
		for range 70 {
			first.Leave()
			time.Sleep(visits.Idle - time.Second)
			if first = mine.part(&visits, func(error) {}); first == nil {
				break
			}
		}
		q.wantInside(0, "after the longest visit, at the latest")
	})
}

// The upstream ends a visit, and lets it be idle for longer, once.
func TestUpstreamEndsVisit(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		inside.Leave()
		mine, first := q.visits(new(request))
		other := mine.part(&visits, func(error) {})
		first.LeaveAfter()
		first.Leave()
		if mine.part(&visits, func(error) {}) != nil {
			q.Error("a request passes after the visit was left")
		}
		q.wantInside(1, "while another request is under way")
		other.Leave()
		q.wantInside(0, "after it")

		mine, first = q.visits(new(request))
		first.Stay(15 * time.Minute)
		first.Leave()
		time.Sleep(14 * time.Minute)
		back := mine.part(&visits, func(error) {})
		if back == nil {
			q.Fatal("the visit has ended before its stay")
		}
		back.Leave()
		time.Sleep(visits.Idle)
		q.wantInside(0, "after the usual idle time")
	})
}

// An eviction reaches all requests of a visit. One whose body is still to be read holds nobody up.
func TestVisitIsEvicted(t *testing.T) {
	for _, idle := range []bool{false, true} {
		inQueue(t, func(q *queue, inside serializer.Turn) {
			inside.Leave()
			first, second, third := new(request), new(request), new(request)
			revoke := func(r *request) func(error) { return func(cause error) { r.revoked.Store(cause) } }
			mine, one := q.visits(first)
			two, three := mine.part(&visits, revoke(second)), mine.part(&visits, revoke(third))
			turn, err := two.Enter()
			must(q, err)
			if idle {
				one.Leave()
				two.Leave()
				three.Leave()
			}
			must(q, q.places.Evict(q.Context(), "a", turn.Token()))
			if idle {
				q.wantInside(0, "after the eviction of an idle visit")
				return
			}
			q.wantInside(1, "while cancelled requests are inside")
			for _, r := range []*request{first, second, third} {
				if r.revoked.Load() != serializer.ErrEvicted {
					q.Errorf("cancelled by %v", r.revoked.Load())
				}
			}
			if _, err := three.Enter(); serializer.ReasonOf(err) != serializer.ReasonEvicted {
				q.Errorf("a request enters after the eviction: %v", err)
			}
			one.Leave()
			two.Leave()
			q.wantInside(0, "after both, though a body is still being read")
			three.Leave()
			if mine.part(&visits, func(error) {}) != nil {
				q.Error("a request passes after the eviction")
			}
		})
	}
}

// All requests of a browser share one ticket, also if they come at once.
func TestRequestsShareTheirTicket(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		served := make(chan *Part)
		for range 10 {
			go func() {
				n := q.visitOf(new(request))
				mine, err := q.join(q.Context(), n, "browser", true)
				if err != nil {
					q.Error(err)
				}
				mine.await(q.Context(), time.Hour)
				if _, err := mine.claim(n); err != nil {
					q.Error(err)
				}
				mine.locked(mine.departLocked)
				served <- n.Part
			}()
		}
		synctest.Wait()
		if _, waiting := q.places.Count("a"); waiting != 1 {
			q.Errorf("%d wait; expected 1", waiting)
		}
		inside.Leave()
		for range 10 {
			(<-served).Leave()
		}
		time.Sleep(visits.Idle)
		q.wantInside(0, "in the end")
	})
}

// The turn of a browser in line waits for it for 30 seconds, then for half as long. At most a
// tenth of the places wait so.
func TestTurnOfAVisitWaits(t *testing.T) {
	for capacity, want := range map[int][]time.Duration{
		1:  {3000 * time.Millisecond, 1500 * time.Millisecond},
		10: {30 * time.Second, 15 * time.Second, 7500 * time.Millisecond},
	} {
		inQueue(t, func(q *queue, inside serializer.Turn) {
			for i, want := range want {
				n := q.visitOf(new(request))
				n.Line.Capacity, n.Line.Page = capacity, &Page{hold: 5 * time.Minute}
				q.waits(n, true)
				if idle := q.idleAfter(inside); idle < want || idle > want+10*time.Millisecond {
					q.Errorf("turn %d of %d places waited for %v; expected %v", i, capacity, idle, want)
				}
				inside = q.enter()
			}
			inside.Leave()
		})
	}
	a := absences{long: make(map[string]int)}
	lend := func(queue string, places int) bool {
		allowed, _ := a.offer(absent{queue: queue}, places)
		return allowed == visitAllowance
	}
	var lent []bool
	for range 4 {
		lent = append(lent, lend("a", 30))
	}
	if !slices.Equal(lent, []bool{true, true, true, false}) || !lend("b", 2) || lend("c", 1) {
		t.Error("not a tenth of the places wait for long")
	}
	if a.settle(absent{queue: "a"}, visitAllowance, 0); !lend("a", 30) {
		t.Error("a place that was given back is still taken")
	}
}

// Of a browser with two places, whose tabs were opened at once, the visit counts.
func TestVisitOfTwoPlaces(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		inside.Leave()
		mine, part := q.visits(new(request))
		other := q.waits(q.visitOf(new(request)), true)
		for _, ids := range [][]string{{mine.id, other.id}, {other.id, mine.id}} {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			for _, id := range ids {
				r.AddCookie(&http.Cookie{Name: cookieName(r, id), Value: sign(newcomer + id)})
			}
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
			TakeCookies(r, r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any))
			if k := q.find(r, "", "a"); k.ticket != mine {
				q.Error("the place in line counts")
			}
		}
		part.Leave()
	})
}

// After a visit, its cookie lets nothing pass but a navigation.
func TestCookieOfAnEndedVisit(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		inside.Leave()
		id := q.visitOf(new(request)).newID()
		send := func(method, value string) (*Part, error) {
			w, r := httptest.NewRecorder(), httptest.NewRequest(method, "/", nil)
			r.Header.Set("Accept", "text/html")
			r.AddCookie(&http.Cookie{Name: cookieName(r, id), Value: value})
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
			TakeCookies(r, r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any))
			return q.Visit(w, r, &Line{Page: new(Page), Visits: &visits}, "a", func(error) {})
		}
		for _, test := range []struct {
			method, value string
			ended         bool
		}{
			{"POST", sign(visitor + id), true},
			{"GET", sign(visitor + id), false},
			{"POST", sign(newcomer + id), false},
			{"POST", sign(visitor + "another" + id), false},               // of another queue
			{"POST", visitor + sign(id), false},                           // forged
			{"POST", visitor + sign(newcomer + id)[1:], false},            // forged
			{"POST", sign(visitor + id)[:len(sign(visitor+id))-1], false}, // cut
		} {
			part, err := send(test.method, test.value)
			refused, _ := errors.AsType[*serializer.Refused](err)
			if part != nil || (refused != nil) != test.ended || refused != nil && refused.Reason != telemetry.ReasonVisitEnded {
				q.Errorf("%s with %s: %v", test.method, test.value, err)
			}
		}
	})
}
