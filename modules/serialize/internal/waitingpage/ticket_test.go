package waitingpage

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// queue is a queue in which the test sits, and browsers wait.
type queue struct {
	*testing.T
	Book
	Places
}

// inQueue runs a test with a queue, on a clock of its own.
func inQueue(t *testing.T, test func(q *queue, inside serializer.Turn)) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{T: t, Places: Places{Engine: serializer.New(memory.New(memory.Options{}), serializer.Options{})}}
		test(q, q.enter())
		_ = q.Engine.Close()
		time.Sleep(time.Hour) // all timers have ended
		q.tickets.Range(func(_, ticket any) bool {
			t.Errorf("a ticket is never forgotten: %+v", ticket)
			return true
		})
	})
}

// someone is who a ticket is taken for, and the request that claims it.
type someone struct {
	ends    atomic.Int32
	revoked error
}

func (s *someone) Request() serializer.Request { return serializer.Request{Path: "/mine"} }
func (s *someone) Guess(int) float64           { return 0 }
func (s *someone) End(error)                   { s.ends.Add(1) }

const hold = 15 * time.Second

// enter takes a turn that is held until it is left.
func (q *queue) enter() serializer.Turn {
	q.Helper()
	turn, err := q.Enter(q.Context(), serializer.Arrival{Queue: "a"})
	if err != nil {
		q.Fatal(err)
	}
	return turn
}

// page gives a browser the page. It has not come back yet.
func (q *queue) page() *Ticket {
	q.Helper()
	s := new(someone)
	t := q.join(&q.Places, serializer.Arrival{Queue: "a", Requester: s}, hold, s)
	q.want(t, errWaiting)
	return t
}

// proven gives a browser the page, which comes again without a script.
func (q *queue) proven() *Ticket {
	q.Helper()
	t := q.page()
	t.proven.Store(true)
	q.want(t, errWaiting)
	return t
}

// asked gives a browser the page, whose script asks for the place once.
func (q *queue) asked() *Ticket {
	q.Helper()
	t := q.proven()
	if t.await(q.Context(), askTime) {
		q.Error("the page is to reload before its turn")
	}
	return t
}

// want claims a ticket, and expects an error, or none.
func (q *queue) want(t *Ticket, want error) serializer.Turn {
	q.Helper()
	s := t.Caller.(*someone)
	turn, err := t.claim(&serializer.Arrival{Requester: s, Revoke: func(cause error) { s.revoked = cause }})
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

// A place is kept for hold after the last contact, but only for three seconds if the
// browser has not sent its cookie back.
func TestPlaceIsGivenUp(t *testing.T) {
	for want, give := range map[time.Duration]func(*queue) *Ticket{awayTime: (*queue).page, hold: (*queue).asked} {
		inQueue(t, func(q *queue, inside serializer.Turn) {
			mine := give(q)
			time.Sleep(want - time.Millisecond)
			if _, waiting := q.Count("a"); waiting != 1 {
				q.Errorf("the place is not kept for %v", want)
			}
			time.Sleep(2 * time.Millisecond)
			if _, waiting := q.Count("a"); waiting != 0 {
				q.Errorf("the place is kept for longer than %v", want)
			}
			q.want(mine, ErrAway)
			if ends := mine.Caller.(*someone).ends.Load(); ends != 1 {
				q.Errorf("it has ended %d times", ends)
			}
			inside.Leave()
		})
	}
}

// Bug: ten places without a connection cost the next request 21 seconds, two for each.
func TestAbsentBrowsersCostLittle(t *testing.T) {
	const most = 10 * time.Second
	for name, give := range map[string]func(*queue) *Ticket{"no cookie": (*queue).page, "no script": (*queue).proven, "script": (*queue).asked} {
		t.Run(name, func(t *testing.T) {
			inQueue(t, func(q *queue, inside serializer.Turn) {
				for range 200 {
					go give(q)
				}
				for range 10 { // the same in the course of time
					give(q)
					time.Sleep(time.Second)
				}
				for range 200 {
					go give(q)
				}
				time.Sleep(askTime)
				if idle := q.idle(inside); idle > most {
					q.Errorf("the next request waits for %v; expected %v at most", idle, most)
				}
			})
		})
	}
}

// Questions do not keep a turn that nobody claims.
func TestTurnIsNotProlongedForEver(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		mine, over := q.asked(), false
		go func() {
			for !over {
				mine.await(q.Context(), askTime)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		if idle := q.idle(inside); idle < awayTime || idle > askTime+awayTime {
			q.Errorf("the turn waits for %v", idle)
		}
		over = true
	})
}

// A turn that is taken back while it waits for its browser is a refusal. The browser learns
// of it, once.
func TestTurnIsRevoked(t *testing.T) {
	for want, revoke := range map[error]func(*queue, serializer.Turn){
		serializer.ErrEvicted: func(q *queue, inside serializer.Turn) {
			if err := q.Evict(q.Context(), "a", inside.Token()+1); err != nil {
				q.Error(err)
			}
		},
		serializer.ErrClosed: func(q *queue, _ serializer.Turn) { go q.Engine.Close() },
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
					q.Error("it learns of it again")
				}
				if ends := mine.Caller.(*someone).ends.Load(); ends != 1 {
					q.Errorf("it has ended %d times", ends)
				}
			})
		})
	}
}

// A turn that is taken back reaches the request that has claimed it.
func TestRevocationReachesTheHeir(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		mine := q.asked()
		inside.Leave()
		synctest.Wait()
		turn := q.want(mine, nil)
		q.want(mine, errNone) // another tab
		if err := q.Evict(q.Context(), "a", turn.Token()); err != nil {
			q.Fatal(err)
		}
		synctest.Wait()
		if revoked := mine.Caller.(*someone).revoked; !errors.Is(revoked, serializer.ErrEvicted) {
			q.Errorf("revoked by %v", revoked)
		}
		turn.Leave()
	})
}

// Many requests of one browser at the same moment get one turn.
func TestOneTurnForAllTabs(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		mine := q.asked()
		turns := make(chan serializer.Turn, 100)
		for range cap(turns) {
			go func() {
				if mine.await(q.Context(), askTime) {
					if turn, err := mine.claim(new(serializer.Arrival)); err == nil {
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

// A cookie is of no use for another queue, or in another process.
func TestOnlyOurCookies(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		mine := q.page()
		for queue, want := range map[string]*Ticket{"a": mine, "b": nil} {
			r := httptest.NewRequest(http.MethodGet, "https://a.example/", nil)
			r.AddCookie(&http.Cookie{Name: cookieName(r, "", queue), Value: sign("x", "", "a")})
			r.AddCookie(&http.Cookie{Name: cookieName(r, "", queue), Value: sign(mine.id, "", "a")})
			if found := q.find(r, "", queue); found != want {
				q.Errorf("the cookie finds %p in queue %s; expected %p", found, queue, want)
			}
		}
		inside.Leave()
	})
}
