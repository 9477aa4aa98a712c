package waitingpage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// queue is a queue in which the test sits, and browsers wait.
type queue struct {
	*testing.T
	Book
	engine *engines.Ref
	places *Places
	report *telemetry.Reporter
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inQueue runs a test with a queue, on a clock of its own.
func inQueue(t *testing.T, test func(q *queue, inside serializer.Turn)) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := engines.Open(engines.Memory{}, "/"+t.Name(), slog.New(slog.DiscardHandler))
		must(t, err)
		q := &queue{T: t, engine: engine, places: PlacesOf(engine.Shared), report: &telemetry.Reporter{Counters: telemetry.NewCounters(t.Name()), Logger: zap.NewNop()}}
		test(q, q.enter())
		_ = engine.Close()
		time.Sleep(time.Hour) // all timers have ended
		q.tickets.Range(func(_, ticket any) bool {
			t.Errorf("a ticket is never forgotten: %+v", ticket)
			return true
		})
		if waiting := q.report.Waiting.Load(); waiting != 0 {
			t.Errorf("%d are counted as waiting", waiting)
		}
		if engine.Release(); slices.Contains(engines.All(), engine.Shared) {
			t.Error("a ticket still has a reference to the engine")
		}
	})
}

// request is what a ticket is taken for, and what claims it.
type request struct {
	revoked atomic.Value
	client  string
}

func (r *request) Request() serializer.Request {
	return serializer.Request{Path: "/mine", ClientIP: r.client}
}

// navigation is that of a request.
func (q *queue) navigation(r *request) *Navigation {
	return &Navigation{
		Arrival: serializer.Arrival{Queue: "a", Requester: r, Revoke: func(cause error) { r.revoked.Store(cause) }},
		About:   &telemetry.Request{Queue: "a"}, Line: &Line{Report: q.report, Page: &Page{hold: hold}}, shown: true,
		Engine: q.engine,
	}
}

const hold = 15 * time.Second

// enter takes a turn that is held until it is left.
func (q *queue) enter() serializer.Turn {
	q.Helper()
	turn, err := q.places.Enter(q.Context(), serializer.Arrival{Queue: "a"})
	must(q, err)
	return turn
}

// given gives a browser the page.
func (q *queue) given() *Ticket { return q.givenTo("192.0.2.1") }

func (q *queue) givenTo(client string) *Ticket {
	q.Helper()
	return q.waits(q.navigation(&request{client: client}), false)
}

// waits takes a place by a navigation, which gets the page.
func (q *queue) waits(n *Navigation, proven bool) *Ticket {
	q.Helper()
	t, err := q.join(q.Context(), n, "", proven)
	must(q, err)
	if _, err := t.claim(n); !errors.Is(err, errWaiting) {
		q.Errorf("claiming: %v; expected %v", err, errWaiting)
	}
	t.locked(t.departLocked)
	return t
}

// proven is given to a browser that sends the cookie back.
func (q *queue) proven() *Ticket {
	t := q.given()
	t.proven.Store(true)
	return t
}

// asked gives a browser the page. It comes again, and its script asks for the place once.
func (q *queue) asked() *Ticket {
	q.Helper()
	t := q.proven()
	q.want(t, errWaiting)
	if t.await(q.Context(), askTime) {
		q.Error("the page is to reload before its turn")
	}
	return t
}

// asking gives a browser the page. Its script asks for the place once more, and the question is under way.
func (q *queue) asking() *Ticket {
	t := q.proven()
	go t.await(q.Context(), askTime)
	return t
}

// want claims a ticket, and expects an error.
func (q *queue) want(t *Ticket, want error) {
	q.Helper()
	if _, err := t.claim(q.navigation(new(request))); !errors.Is(err, want) {
		q.Fatalf("claiming: %v; expected %v", err, want)
	}
}

// served claims a turn that has come, and leaves it.
func (q *queue) served(t *Ticket) {
	q.Helper()
	turn, err := t.claim(q.navigation(new(request)))
	must(q, err)
	turn.Leave()
	q.engine.Release()
}

// Bug: one client idled a queue: the turn of each abandoned place waited for three seconds,
// and for five if its script went on asking. 20 of them cost the next waiter 82 seconds.
func TestTurnsThatNobodyClaims(t *testing.T) {
	const places = 20
	for name, test := range map[string]struct {
		browser     func(q *queue) *Ticket
		asks        time.Duration // how long after each answer; 0: never
		least, most time.Duration
	}{
		"without a cookie": {(*queue).given, 0, 0, 0},
		"absent":           {(*queue).proven, 0, 7 * time.Second, 7500 * time.Millisecond},
		"asks at once":     {(*queue).asked, time.Millisecond, 7 * time.Second, 8 * time.Second},
		"asks slowly":      {(*queue).asked, 2900 * time.Millisecond, 7 * time.Second, 8 * time.Second},
		"goes meanwhile":   {(*queue).asking, 0, 7 * time.Second, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inQueue(t, func(q *queue, inside serializer.Turn) {
				ctx, stop := context.WithCancel(q.Context())
				defer stop()
				for range places {
					mine := test.browser(q)
					for range 2 * min(test.asks, 1) { // two tabs
						go func() {
							for ctx.Err() == nil {
								mine.await(ctx, askTime)
								time.Sleep(test.asks)
							}
						}()
					}
				}
				cost := q.idleAfter(inside)
				if cost < test.least || cost > test.most {
					q.Errorf("the next one waited for %v; expected %v to %v", cost, test.least, test.most)
				}
			})
		})
	}
}

// idleAfter has the turn left, and returns for how long the browsers that wait keep the
// queue from the next one.
func (q *queue) idleAfter(inside serializer.Turn) time.Duration {
	entered := make(chan serializer.Turn)
	go func() { entered <- q.enter() }()
	synctest.Wait()
	left := time.Now()
	inside.Leave()
	turn := <-entered
	defer turn.Leave()
	return time.Since(left)
}

// A turn waits for three seconds. After each that nobody has claimed, the next waits half as
// long, until one is claimed or has been forgotten.
func TestUnclaimedTurnsWaitLessAndLess(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		for i, want := range []time.Duration{3000, 1500, 750, 375, -1, 3000, 1500, -2, 3000} {
			mine := q.asked()
			if want == -1 {
				inside.Leave()
				synctest.Wait()
				q.served(mine)
			} else if want == -2 {
				mine.wait.GiveUp(errAway)
				time.Sleep(absencesKept)
				continue
			} else if idle := q.idleAfter(inside); idle < want*time.Millisecond || idle > (want+10)*time.Millisecond {
				q.Errorf("turn %d waited for %v; expected %d ms", i, idle, want)
			}
			inside = q.enter()
		}
		inside.Leave()
	})
}

// Bug: the end of one client's absence gave the whole queue back what others had just used up.
func TestAbsencesEndApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := absences{costs: make(map[absent]absence)}
		a.settle(absent{queue: "q", client: "one"}, allowance, 1)
		time.Sleep(absencesKept / 2)
		a.settle(absent{queue: "q", client: "two"}, allowance, 1)
		time.Sleep(absencesKept/2 + time.Second)
		if _, left := a.offer(absent{queue: "q", client: "three"}, 0); left != 0 {
			t.Errorf("half a minute after an absence, %v are left", left)
		}
		time.Sleep(absencesKept)
		if _, left := a.offer(absent{queue: "q", client: "three"}, 0); left != allowance {
			t.Errorf("a minute later, %v are left", left)
		}
	})
}

// What browsers that have gone have cost counts for half of what those that are here may cost, at most. Turns that
// wait side by side cost what one does. Bug: ten places of which one had gone, and nine were given up when their
// turns came, cost nine seconds.
func TestAbsencesCountTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := absences{costs: make(map[absent]absence)}
		for i, step := range []struct {
			here       bool
			part       float64
			sideBySide bool
			left       time.Duration
		}{
			{false, 0.5, false, 3 * time.Second}, {false, 0.25, false, 3 * time.Second}, {true, 0.25, false, 1500 * time.Millisecond},
			{true, 0.25, true, 1500 * time.Millisecond}, {true, 0.25, false, 0},
		} {
			if !step.sideBySide {
				time.Sleep(time.Duration(step.part * float64(allowance)))
			}
			a.settle(absent{queue: "q", here: step.here}, allowance, step.part)
			if _, left := a.offer(absent{queue: "q", here: true}, 0); left != step.left {
				t.Errorf("after step %d, %v are left; expected %v", i, left, step.left)
			}
		}
	})
}

// Bug: a turn cost nothing if a late browser came just before its end, or another turn was given up, whose client
// had used up its half.
func TestAbsencesHideNoOthers(t *testing.T) {
	of := func(client string) absent { return absent{queue: "q", client: client} }
	for client, part := range map[string]float64{"late": late, "used up": 0.01} {
		synctest.Test(t, func(t *testing.T) {
			a := absences{costs: make(map[absent]absence)}
			time.Sleep(allowance)
			a.settle(of("used up"), allowance, 0.5)
			a.settle(of("late"), allowance, late)
			time.Sleep(allowance / 4)
			a.settle(of(client), allowance, part)
			a.settle(of("other"), allowance, 0.25)
			if _, left := a.offer(of("next"), 0); left != allowance*3/4 {
				t.Errorf("%s: %v are left", client, left)
			}
		})
	}
}

// Bug: one client that kept its cookies and never claimed a turn idled a queue: each turn that
// another browser claimed, and each for which it came too late, gave it three seconds again. Only the first
// of these does.
func TestClientThatNeverClaims(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		for i, want := range []time.Duration{3000, 3000, 1500, 750} {
			bot := q.givenTo("198.51.100.7")
			bot.proven.Store(true)
			if idle := q.idleAfter(inside); idle < want*time.Millisecond || idle > (want+10)*time.Millisecond {
				q.Errorf("turn %d of the client waited for %v; expected %d ms", i, idle, want)
			}
			inside = q.enter()
			q.want(bot, errAway)
			mine := q.proven()
			inside.Leave()
			synctest.Wait()
			q.served(mine)
			inside = q.enter()
		}
		inside.Leave()
	})
}

// Bug: after six places that nobody claimed, no browser with a round trip of 400 ms got in any
// more. Each came too late for its turn, and so kept the next one's short. Bug: one that came too late on purpose
// did the same.
func TestLateBrowserIsNotAbsent(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		for _, want := range []time.Duration{3 * time.Second, 3 * time.Second / 2} {
			for i := range 10 {
				q.givenTo(fmt.Sprint(i)).proven.Store(true)
			}
			q.idleAfter(inside)
			inside = q.enter()
			late := q.givenTo("198.51.100.7")
			late.proven.Store(true)
			if idle := q.idleAfter(inside); idle > 200*time.Millisecond {
				q.Errorf("the turn waited for %v", idle)
			}
			inside = q.enter()
			time.Sleep(time.Second)
			q.want(late, errAway)
			q.proven()
			if idle := q.idleAfter(inside); idle.Round(time.Millisecond) != want {
				q.Errorf("the next turn waited for %v; expected %v", idle, want)
			}
			inside = q.enter()
		}
		inside.Leave()
	})
}

// Bug: after six places that nobody claimed, a page that was open had 100 ms to come for its turn. With 200
// places, of which a tenth had been left, every ninth browser with a round trip of 300 ms lost its place.
// Seven open pages of one client that never came for their turns did the same.
func TestOpenPageBesideAbsentBrowsers(t *testing.T) {
	for _, c := range []struct{ bots, script bool }{{false, true}, {false, false}, {true, true}} {
		inQueue(t, func(q *queue, inside serializer.Turn) {
			for i := range 10 {
				client := fmt.Sprint(i)
				if c.bots {
					client = "198.51.100.7"
				}
				other := q.givenTo(client)
				other.proven.Store(true)
				if c.bots {
					go other.await(q.Context(), 2*allowance)
				}
			}
			q.idleAfter(inside)
			inside = q.enter()
			var mine *Ticket
			if c.script {
				mine = q.asking()
			} else {
				mine = q.proven()
				time.Sleep(refreshTime)
				q.want(mine, errWaiting)
			}
			synctest.Wait()
			inside.Leave()
			time.Sleep(time.Second)
			q.served(mine)
		})
	}
}

// Bug: each turn that came looked through all absences of the last minute, which kept a core busy.
func TestManyAbsences(t *testing.T) {
	a := absences{costs: make(map[absent]absence)}
	for i := range 100_000 {
		a.settle(absent{queue: fmt.Sprint(i)}, 0, 1)
	}
	begun := time.Now()
	for range 1000 {
		a.offer(absent{queue: "q"}, 0)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("a thousand turns took %v", took)
	}
}

// Bug: a browser whose round trip took longer than a second lost its place. Without
// JavaScript, it was lost at each reload.
func TestSlowNetworksKeepTheirPlaces(t *testing.T) {
	const roundTrip = 3 * time.Second
	for name, absent := range map[string]time.Duration{"script": roundTrip, "no script": roundTrip + refreshTime} {
		t.Run(name, func(t *testing.T) {
			for after := 10 * time.Second; after < 20*time.Second; after += 250 * time.Millisecond { // at all points of a cycle
				inQueue(t, func(q *queue, inside serializer.Turn) {
					time.AfterFunc(after+time.Millisecond, inside.Leave)
					mine := q.given()
					for {
						time.Sleep(absent)
						mine.proven.Store(true)
						if name == "script" {
							if !mine.await(q.Context(), askTime) {
								continue
							}
							time.Sleep(absent)
						}
						turn, err := mine.claim(q.navigation(new(request)))
						if err == nil {
							turn.Leave()
							q.engine.Release()
						} else if errors.Is(err, errWaiting) {
							continue
						} else {
							q.Errorf("a turn that came after %v: %v", after, err)
						}
						break
					}
				})
			}
		})
	}
}

// A browser without the cookie keeps its place for less than ten seconds. A browser that
// comes with the cookie of a lost place need not prove it again.
func TestCookieProvesTheNextPlace(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		q.given()
		time.Sleep(10 * time.Second)
		if _, waiting := q.places.Count("a"); waiting > 0 {
			q.Error("it has its place after ten seconds")
		}
		inside.Leave()
		inside = q.enter()
		mine := q.waits(q.navigation(new(request)), true)
		inside.Leave()
		time.Sleep(time.Second)
		q.served(mine)
	})
}

// If a browser stops returning, its place is given up after hold. When it returns, it learns that.
func TestPlaceIsGivenUp(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		mine := q.proven()
		for range 2 {
			time.Sleep(hold - time.Second)
			q.want(mine, errWaiting)
			mine.locked(mine.departLocked)
		}
		time.Sleep(hold + time.Second)
		if _, waiting := q.places.Count("a"); waiting > 0 {
			q.Error("it has its place after hold")
		}
		if gone := q.report.Outcomes[string(serializer.ReasonGone)].Count.Load(); gone != 1 {
			q.Errorf("%d are counted as gone", gone)
		}
		q.want(mine, errAway)
		inside.Leave()
	})
}

// A turn that is taken back while it waits for its browser is a refusal. The browser learns
// of it, once.
func TestTurnIsRevoked(t *testing.T) {
	for want, revoke := range map[error]func(*queue, serializer.Turn){
		serializer.ErrEvicted: func(q *queue, inside serializer.Turn) {
			must(q, q.places.Evict(q.Context(), "a", inside.Token()+1))
		},
		serializer.ErrClosed: func(q *queue, _ serializer.Turn) { go q.places.Close() },
	} {
		t.Run(want.Error(), func(t *testing.T) {
			inQueue(t, func(q *queue, inside serializer.Turn) {
				mine := q.asked()
				inside.Leave()
				synctest.Wait()
				revoke(q, inside)
				time.Sleep(100 * time.Millisecond)
				if !mine.await(q.Context(), askTime) {
					q.Error("the page is not to reload")
				}
				q.want(mine, want)
				if _, again := q.tickets.Load(mine.id); again {
					q.Error("another tab learns of it, too")
				}
			})
		})
	}
}

// A browser that has hung up is not refused when it comes again.
func TestHangUpIsNoRefusal(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		mine := q.proven()
		mine.giveUp(context.Canceled)
		<-mine.decision
		q.want(mine, errNone)
		inside.Leave()
	})
}

// A turn that is taken back reaches the request that has claimed it.
func TestRevocationReachesTheClaimer(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		mine := q.asked()
		inside.Leave()
		synctest.Wait()
		claims, another := new(request), new(request)
		turn, err := mine.claim(q.navigation(claims))
		if _, none := mine.claim(q.navigation(another)); err != nil || !errors.Is(none, errNone) {
			q.Errorf("claiming: %v, by another tab: %v", err, none)
		}
		must(q, q.places.Evict(q.Context(), "a", turn.Token()))
		synctest.Wait()
		if first, other := claims.revoked.Load(), another.revoked.Load(); first != serializer.ErrEvicted || other != nil {
			q.Errorf("revoked by %v, and the other tab by %v", first, other)
		}
		turn.Leave()
		q.engine.Release()
	})
}

// Requests of one browser that come at once share one ticket.
func TestRequestsShareTheirTicket(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		var tickets []*Ticket
		for range 2 {
			mine, err := q.join(q.Context(), q.navigation(new(request)), "browser", true)
			must(q, err)
			mine.locked(mine.departLocked)
			tickets = append(tickets, mine)
		}
		if _, waiting := q.places.Count("a"); waiting != 1 || tickets[0] != tickets[1] {
			q.Errorf("%d wait; expected 1", waiting)
		}
		inside.Leave()
	})
}
