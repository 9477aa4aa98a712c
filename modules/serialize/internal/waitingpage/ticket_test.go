package waitingpage

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// queue is a queue in which the test sits, and browsers wait.
type queue struct {
	*testing.T
	Book
	places   Places
	report   *telemetry.Reporter
	acquired atomic.Int32
}

// inQueue runs a test with a queue, on a clock of its own.
func inQueue(t *testing.T, test func(q *queue, inside serializer.Turn)) {
	synctest.Test(t, func(t *testing.T) {
		engine := serializer.New(memory.New(memory.Options{}), serializer.Options{})
		q := &queue{T: t, places: Places{Engine: engine}, report: &telemetry.Reporter{Stats: telemetry.NewStats(t.Name())}}
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
		if acquired := q.acquired.Load(); acquired != 0 {
			t.Errorf("%d references to the engine", acquired)
		}
	})
}

// Places and Release are what a ticket needs of its engine.
func (q *queue) Places() *Places { return &q.places }
func (q *queue) Release()        { q.acquired.Add(-1) }

// request is what a ticket is taken for, and what claims it.
type request struct{ revoked atomic.Value }

func (r *request) Request() serializer.Request { return serializer.Request{Path: "/mine"} }

// visit is that of a request of a browser.
func (q *queue) visit(r *request) *Visit {
	return &Visit{
		Arrival: serializer.Arrival{Queue: "a", Requester: r, Revoke: func(cause error) { r.revoked.Store(cause) }},
		About:   &telemetry.Request{Entry: agelist.Entry{Queue: "a"}}, Report: q.report, Page: &Page{hold: hold},
		Acquire: func() (Engine, error) { q.acquired.Add(1); return q, nil },
	}
}

const hold = 15 * time.Second

// enter takes a turn that is held until it is left.
func (q *queue) enter() serializer.Turn {
	q.Helper()
	turn, err := q.places.Enter(q.Context(), serializer.Arrival{Queue: "a"})
	if err != nil {
		q.Fatal(err)
	}
	return turn
}

// asked gives a browser the page. It comes again, and its script asks for the place once.
func (q *queue) asked() *Ticket {
	q.Helper()
	t, err := q.join(q.Context(), q.visit(new(request)))
	if err != nil {
		q.Fatal(err)
	}
	q.want(t, errWaiting)
	t.proven.Store(true)
	q.want(t, errWaiting)
	if t.await(q.Context(), askTime) {
		q.Error("the page is to reload before its turn")
	}
	return t
}

// want claims a ticket, and expects an error.
func (q *queue) want(t *Ticket, want error) {
	q.Helper()
	if _, err := t.claim(q.visit(new(request))); !errors.Is(err, want) {
		q.Fatalf("claiming: %v; expected %v", err, want)
	}
}

// Questions do not keep a turn that nobody claims.
func TestTurnIsNotProlongedForEver(t *testing.T) {
	inQueue(t, func(q *queue, inside serializer.Turn) {
		mine := q.asked()
		ctx, stop := context.WithCancel(q.Context())
		go func() {
			for ctx.Err() == nil {
				mine.await(ctx, askTime)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		entered := make(chan serializer.Turn)
		go func() { entered <- q.enter() }() // the next one
		synctest.Wait()
		left := time.Now()
		inside.Leave()
		turn := <-entered
		if idle := time.Since(left); idle < awayTime || idle > askTime+awayTime {
			q.Errorf("the turn waits for %v", idle)
		}
		turn.Leave()
		stop()
	})
}

// A turn that is taken back while it waits for its browser is a refusal. The browser learns
// of it, once.
func TestTurnIsRevoked(t *testing.T) {
	for want, revoke := range map[error]func(*queue, serializer.Turn){
		serializer.ErrEvicted: func(q *queue, inside serializer.Turn) {
			if err := q.places.Evict(q.Context(), "a", inside.Token()+1); err != nil {
				q.Error(err)
			}
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
					q.Error("it learns of it again")
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
		claims, another := new(request), new(request)
		turn, err := mine.claim(q.visit(claims))
		if _, none := mine.claim(q.visit(another)); err != nil || !errors.Is(none, errNone) {
			q.Errorf("claiming: %v, by another tab: %v", err, none)
		}
		if err := q.places.Evict(q.Context(), "a", turn.Token()); err != nil {
			q.Fatal(err)
		}
		synctest.Wait()
		if first, other := claims.revoked.Load(), another.revoked.Load(); first != serializer.ErrEvicted || other != nil {
			q.Errorf("revoked by %v, and the other tab by %v", first, other)
		}
		turn.Leave()
		q.Release()
	})
}
