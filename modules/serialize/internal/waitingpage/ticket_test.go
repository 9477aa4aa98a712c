package waitingpage

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// queue is a queue in which the test sits, and browsers wait.
type queue struct {
	*testing.T
	*Book
	engine *serializer.Engine
	places Places
}

// inQueue runs a test with a queue, on a clock of its own.
func inQueue(t *testing.T, test func(q *queue)) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{T: t, Book: NewBook(), engine: serializer.New(memory.New(memory.Options{}), serializer.Options{})}
		test(q)
		_ = q.engine.Close()
		time.Sleep(time.Hour) // all timers have ended
		q.tickets.Range(func(_, ticket any) bool {
			t.Errorf("a ticket is never forgotten: %+v", ticket)
			return true
		})
	})
}

// someone is who a ticket is taken for.
type someone struct {
	turns, ends atomic.Int32
	refusal     error
}

func (s *someone) Request() serializer.Request { return serializer.Request{Path: "/mine"} }
func (s *someone) RevokedAt() time.Time        { return time.Time{} }
func (s *someone) End(error)                   { s.ends.Add(1) }
func (s *someone) Turn(serializer.Turn) error {
	s.turns.Add(1)
	return s.refusal
}

const hold = 15 * time.Second

// enter takes a turn that is held until it is left.
func (q *queue) enter() serializer.Turn {
	q.Helper()
	turn, err := q.engine.Enter(q.Context(), serializer.Arrival{Queue: "a"})
	if err != nil {
		q.Fatal(err)
	}
	return turn
}

// page gives a browser the page. It has not come back yet.
func (q *queue) page(a serializer.Arrival) *Ticket {
	q.Helper()
	a.Queue = "a"
	t := q.Join(q.engine, a, hold, new(someone))
	t.Await(q.Context(), 0)
	q.want(t, ErrWaiting)
	return t
}

// proven gives a browser the page, which asks for its place once.
func (q *queue) proven() *Ticket {
	q.Helper()
	t := q.page(serializer.Arrival{})
	q.comeBack(t)
	t.Ask(q.Context())
	return t
}

// comeBack sends the cookie of a ticket.
func (q *queue) comeBack(t *Ticket) {
	q.Helper()
	if found := q.send("a", q.cookie("a", t)); found != t {
		q.Fatalf("the cookie of %p finds %p", t, found)
	}
}

func (q *queue) cookie(name string, t *Ticket) *http.Cookie {
	return q.Cookie(request(), t, name, 0)
}

// request is one as Caddy has it.
func request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	return r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, map[string]any{}))
}

// send sends cookies, and returns the ticket that they name.
func (q *queue) send(name string, cookies ...*http.Cookie) *Ticket {
	r := request()
	for _, c := range cookies {
		r.AddCookie(c)
	}
	t, _ := q.Find(r, name)
	return t
}

// want claims a ticket, and expects an error, or none.
func (q *queue) want(t *Ticket, want error) serializer.Turn {
	q.Helper()
	turn, err := t.Claim(func(error) {})
	if !errors.Is(err, want) {
		q.Fatalf("claiming: %v; expected %v", err, want)
	}
	return turn
}

// idle leaves a turn, and returns how long it takes until the next request with a
// connection enters.
func (q *queue) idle(inside serializer.Turn) time.Duration {
	q.Helper()
	entered := make(chan serializer.Turn)
	go func() { entered <- q.enter() }()
	synctest.Wait()
	left := time.Now()
	inside.Leave()
	turn := <-entered
	defer turn.Leave()
	return time.Since(left)
}

// A browser gets its turn when it comes for it, and its ticket stays in line until then.
func TestTurnIsClaimed(t *testing.T) {
	inQueue(t, func(q *queue) {
		inside := q.enter()
		mine := q.proven()
		for range 10 {
			if mine.Ask(q.Context()) {
				q.Error("it is to reload before its turn")
			}
		}
		asked := make(chan bool)
		go func() { asked <- mine.Ask(q.Context()) }()
		synctest.Wait()
		inside.Leave()
		left := time.Now()
		if reload := <-asked; !reload || time.Since(left) > 0 {
			q.Errorf("reload %v after %v; expected it at once", reload, time.Since(left))
		}
		time.Sleep(callTime - time.Millisecond)
		q.want(mine, nil).Leave()
		q.want(mine, ErrNone) // another tab, which had the cookie, too
		if found := q.send("a", q.cookie("a", mine)); found != nil {
			q.Error("the cookie still finds a ticket that was claimed")
		}
		if s := mine.Caller.(*someone); s.turns.Load() != 1 || s.ends.Load() != 0 {
			q.Errorf("%d turns, %d ends", s.turns.Load(), s.ends.Load())
		}
	})
}

// A turn that comes while the browser waits with its connection needs no page.
func TestTurnComesAtOnce(t *testing.T) {
	inQueue(t, func(q *queue) {
		mine := q.Join(q.engine, serializer.Arrival{Queue: "a"}, hold, new(someone))
		mine.Await(q.Context(), time.Minute)
		q.want(mine, nil).Leave()
	})
}

// A browser that hangs up before it has the page leaves at once.
func TestBrowserHangsUp(t *testing.T) {
	inQueue(t, func(q *queue) {
		defer q.enter().Leave()
		mine := q.Join(q.engine, serializer.Arrival{Queue: "a"}, hold, new(someone))
		ctx, cancel := context.WithTimeout(q.Context(), time.Second)
		defer cancel()
		mine.Await(ctx, time.Minute)
		synctest.Wait()
		if _, waiting := q.engine.Count("a"); waiting != 0 {
			q.Errorf("%d wait", waiting)
		}
	})
}

// A place is kept for hold after the last contact, but only for three seconds if the
// browser has not sent its cookie back.
func TestPlaceIsGivenUp(t *testing.T) {
	for want, give := range map[time.Duration]func(*queue) *Ticket{
		proofTime: func(q *queue) *Ticket { return q.page(serializer.Arrival{}) },
		hold:      (*queue).proven,
	} {
		inQueue(t, func(q *queue) {
			defer q.enter().Leave()
			mine, since := give(q), time.Now()
			time.Sleep(want - time.Millisecond)
			if _, waiting := q.engine.Count("a"); waiting != 1 {
				q.Errorf("the place is gone after %v", time.Since(since))
			}
			time.Sleep(2 * time.Millisecond)
			if _, waiting := q.engine.Count("a"); waiting != 0 {
				q.Errorf("the place is kept after %v", time.Since(since))
			}
			q.want(mine, ErrAway)
			if ends := mine.Caller.(*someone).ends.Load(); ends != 1 {
				q.Errorf("it has ended %d times", ends)
			}
		})
	}
}

// Bug: ten places without a connection cost the next request 21 seconds, two for each.
func TestAbsentBrowsersCostLittle(t *testing.T) {
	const most = 10 * time.Second
	for name, give := range map[string]func(q *queue){
		"places without a cookie": func(q *queue) { q.page(serializer.Arrival{}) },
		"proven places":           func(q *queue) { q.proven() },
		"places of pages without JavaScript": func(q *queue) {
			mine := q.page(serializer.Arrival{})
			q.comeBack(mine)
			q.want(mine, ErrWaiting)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inQueue(t, func(q *queue) {
				inside := q.enter()
				for range 200 {
					go give(q)
				}
				time.Sleep(askTime)
				if idle := q.idle(inside); idle > most {
					q.Errorf("the next request waits for %v; expected %v at most", idle, most)
				}
			})
			inQueue(t, func(q *queue) { // the same in the course of time
				inside := q.enter()
				for range 10 {
					give(q)
					time.Sleep(time.Second)
				}
				if idle := q.idle(inside); idle > most {
					q.Errorf("the next request waits for %v; expected %v at most", idle, most)
				}
			})
		})
	}
}

// Questions do not keep a turn that nobody claims.
func TestTurnIsNotProlongedForEver(t *testing.T) {
	inQueue(t, func(q *queue) {
		inside := q.enter()
		mine := q.proven()
		asking, stop := context.WithCancel(q.Context())
		go func() {
			for asking.Err() == nil {
				mine.Ask(asking)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		if idle := q.idle(inside); idle > 2*callTime {
			q.Errorf("the turn waits for %v", idle)
		}
		stop()
	})
}

// A browser learns why its ticket was refused, once.
func TestRefusals(t *testing.T) {
	refusal := errors.New("refused")
	for name, c := range map[string]struct {
		arrival serializer.Arrival
		refuse  func(q *queue, inside serializer.Turn, mine *Ticket)
		want    error
	}{
		"timeout": {
			arrival: serializer.Arrival{Timeout: time.Second},
			refuse:  func(*queue, serializer.Turn, *Ticket) {}, want: serializer.ErrTimeout,
		},
		"superseded": {
			arrival: serializer.Arrival{MaxWaiting: 1, DropOldest: true},
			refuse: func(q *queue, _ serializer.Turn, _ *Ticket) {
				q.page(serializer.Arrival{MaxWaiting: 1, DropOldest: true})
			},
			want: serializer.ErrSuperseded,
		},
		"the engine is closed": {
			refuse: func(q *queue, _ serializer.Turn, _ *Ticket) { go q.engine.Close() }, want: serializer.ErrClosed,
		},
		"evicted while its turn waits": {
			refuse: func(q *queue, inside serializer.Turn, mine *Ticket) {
				inside.Leave()
				synctest.Wait()
				states, _ := q.engine.Queues(q.Context())
				if err := q.engine.Evict(q.Context(), "a", inside.Token()+1); err != nil {
					q.Errorf("%v: %+v", err, states)
				}
			},
			want: serializer.ErrEvicted,
		},
		"refused by its caller": {
			refuse: func(_ *queue, inside serializer.Turn, mine *Ticket) {
				mine.Caller.(*someone).refusal = refusal
				inside.Leave()
			},
			want: refusal,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inQueue(t, func(q *queue) {
				inside := q.enter()
				mine := q.page(c.arrival)
				q.comeBack(mine)
				c.refuse(q, inside, mine)
				time.Sleep(1100 * time.Millisecond)
				if !mine.Ask(q.Context()) {
					q.Error("the page is not to reload")
				}
				q.want(mine, c.want)
				if found := q.send("a", q.cookie("a", mine)); found != nil {
					q.Error("it is told again")
				}
				if ends := mine.Caller.(*someone).ends.Load(); ends != 1 {
					q.Errorf("it has ended %d times", ends)
				}
				inside.Leave()
			})
		})
	}
}

// A turn that is taken back reaches the request that has claimed it.
func TestRevocationReachesTheHeir(t *testing.T) {
	inQueue(t, func(q *queue) {
		inside := q.enter()
		mine := q.proven()
		inside.Leave()
		synctest.Wait()
		var revoked error
		turn, err := mine.Claim(func(cause error) { revoked = cause })
		if err != nil {
			q.Fatal(err)
		}
		if err := q.engine.Evict(q.Context(), "a", turn.Token()); err != nil {
			q.Fatal(err)
		}
		synctest.Wait()
		if !errors.Is(revoked, serializer.ErrEvicted) {
			q.Errorf("revoked by %v", revoked)
		}
		turn.Leave()
	})
}

// Many requests of one browser at the same moment get one turn.
func TestOneTurnForAllTabs(t *testing.T) {
	inQueue(t, func(q *queue) {
		inside := q.enter()
		mine := q.proven()
		turns := make(chan serializer.Turn, 100)
		for range cap(turns) {
			go func() {
				if mine.Ask(q.Context()) {
					if turn, err := mine.Claim(func(error) {}); err == nil {
						turns <- turn
					}
				}
			}()
		}
		synctest.Wait()
		inside.Leave()
		synctest.Wait()
		if len(turns) != 1 {
			q.Fatalf("%d turns; expected one", len(turns))
		}
		(<-turns).Leave()
	})
}

// The number is that among those who wait, also behind others' tickets.
func TestPlaces(t *testing.T) {
	inQueue(t, func(q *queue) {
		inside := q.enter()
		first, second := q.proven(), q.proven()
		if one, two := q.places.Of(first, q.engine), q.places.Of(second, q.engine); one != (Place{Number: 1}) || two != (Place{Number: 2}) {
			q.Errorf("places %v and %v; expected 1 and 2", one, two)
		}
		if err := q.engine.Pause(q.Context(), "a", time.Now().Add(time.Minute)); err != nil {
			q.Fatal(err)
		}
		inside.Leave()
		time.Sleep(placesAge)
		if place := q.places.Of(first, q.engine); place != (Place{Number: 1, Paused: true}) {
			q.Errorf("place %v; expected that the queue is paused", place)
		}
	})
}

// Cookies that this process has not made, or for another queue, have no effect, and do no
// harm beside one that it has made.
func TestOnlyOurCookies(t *testing.T) {
	inQueue(t, func(q *queue) {
		defer q.enter().Leave()
		mine := q.page(serializer.Arrival{})
		ours := q.cookie("a", mine)
		elsewhere := *q.cookie("b", mine)
		elsewhere.Name = ours.Name
		cookies := []*http.Cookie{&elsewhere, NewBook().Cookie(request(), mine, "a", 0)}
		for _, value := range []string{"", "x", strings.Repeat("A", 70), ours.Value[:26], ours.Value[:69], ours.Value + "AA", mine.id + "." + strings.Repeat("A", 43)} {
			cookies = append(cookies, &http.Cookie{Name: ours.Name, Value: value})
		}
		for _, cookie := range cookies {
			if found := q.send("a", cookie); found != nil {
				q.Errorf("cookie %v finds a ticket", cookie)
			}
		}
		if mine.proven.Load() {
			q.Error("a forged cookie has proven the place")
		}
		if found := q.send("a", append(cookies, ours)...); found != mine {
			q.Error("beside forged cookies, the right one does not find its ticket")
		}
	})
}

// Without JavaScript, a page comes again soon to prove its cookie, and then several times
// within hold.
func TestRefresh(t *testing.T) {
	for hold, want := range map[time.Duration]time.Duration{
		time.Second: time.Second, 4 * time.Second: time.Second, 9 * time.Second: 3 * time.Second, 15 * time.Second: 5 * time.Second,
		time.Hour: 5 * time.Second,
	} {
		ticket := &Ticket{hold: hold}
		if got := ticket.Refresh(); got >= proofTime {
			t.Errorf("hold %v: at first %v", hold, got)
		}
		ticket.proven.Store(true)
		if got := ticket.Refresh(); got != want {
			t.Errorf("hold %v: %v; expected %v", hold, got, want)
		}
	}
}
