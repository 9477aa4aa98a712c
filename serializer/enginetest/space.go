package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// space is what one case works with: engines that share their queues, and the
// visitors that the case has sent to them.
type space struct {
	testing.TB
	Options
	engines []serializer.Engine
	judge   judge
	joining bool // visitors enter by Join

	visitors []*visitor
	arriving sync.Mutex // held while visitors grows
}

// visitor is one arrival.
type visitor struct {
	space   *space
	engine  serializer.Engine
	arrival serializer.Arrival
	hangUp  context.CancelCauseFunc
	revoked chan error
	joined  atomic.Int32
	answers atomic.Int32    // how often Join has called done
	wait    serializer.Wait // of Join, once it has ended

	done chan struct{} // closed when Enter or Join has delivered what follows
	turn serializer.Turn
	err  error
	left bool

	evicted bool // while it was inside
}

// on returns an engine. The numbers wrap around, so that cases may count
// visitors.
func (s *space) on(i int) serializer.Engine { return s.engines[i%len(s.engines)] }

// name is the name of a queue.
func (s *space) name(text string) string { return s.QueueName(text) }

// arrival returns an arrival in the queue of most cases.
func (s *space) arrival() serializer.Arrival {
	return serializer.Arrival{Queue: s.name("a_"), Timeout: 2 * s.Patience}
}

func (s *space) ruled(r serializer.Rule) serializer.Arrival {
	a := s.arrival()
	a.Rule = r
	return a
}

// start sends a visitor to the i-th engine.
func (s *space) start(i int, a serializer.Arrival) *visitor {
	return s.startIn(context.Background(), i, a)
}

func (s *space) startIn(ctx context.Context, i int, a serializer.Arrival) *visitor {
	ctx, cancel := context.WithCancelCause(ctx)
	v := &visitor{space: s, engine: s.on(i), hangUp: cancel, revoked: make(chan error, 16), done: make(chan struct{})}
	joined := a.Joined
	a.Joined = func() {
		v.joined.Add(1)
		if joined != nil {
			joined()
		}
	}
	a.Revoke = func(cause error) { v.revoked <- cause }
	s.arriving.Lock()
	s.visitors = append(s.visitors, v)
	a.Client = clientOf(len(s.visitors))
	s.arriving.Unlock()
	v.arrival = a
	go v.enter(ctx)
	return v
}

// clientOf is the address by which a visitor is found in the lists.
func clientOf(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n >> 16)}), uint16(n))
}

func (v *visitor) enter(ctx context.Context) {
	defer close(v.done)
	if v.space.joining {
		v.turn, v.err = v.enterByJoin(ctx)
	} else {
		v.turn, v.err = v.engine.Enter(ctx, v.arrival)
	}
	switch {
	case v.err != nil && v.turn != nil:
		v.space.Errorf("%v: Enter returned a turn and the error %v", v, v.err)
	case v.err == nil && v.turn == nil:
		v.err = errors.New("Enter returned neither a turn nor an error")
		v.space.Errorf("%v: %v", v, v.err)
	case v.err == nil:
		v.space.judge.enter(v)
	default:
		v.checkReason()
	}
}

// checkReason makes sure that a refusal has a reason that callers know.
func (v *visitor) checkReason() {
	refused, ok := errors.AsType[*serializer.Refused](v.err)
	if ok && !slices.Contains(serializer.Reasons(), refused.Reason) {
		v.space.Errorf("%v: refused for %q: %v; expected a reason of %q", v, refused.Reason, refused.Err, serializer.Reasons())
	}
}

func (v *visitor) String() string {
	return fmt.Sprintf("visitor %s of queue %q by %+v", v.arrival.Client, v.arrival.Queue, v.arrival.Rule)
}

// join sends a visitor and returns once it has its ticket, and its engine knows it.
func (s *space) join(i int, a serializer.Arrival) *visitor {
	s.Helper()
	v := s.start(i, a)
	v.joins()
	s.until(fmt.Sprintf("%v is listed", v), func() bool {
		_, listed := v.ticket()
		return listed || v.returned()
	})
	return v
}

// joins waits until Joined was called: a list that is read from elsewhere may show
// the ticket earlier.
func (v *visitor) joins() {
	v.space.Helper()
	v.space.until(fmt.Sprintf("Joined is called for %v", v), func() bool { return v.joined.Load() > 0 || v.returned() })
}

// enter sends a visitor and returns once it is inside.
func (s *space) enter(i int, a serializer.Arrival) *visitor {
	s.Helper()
	return s.start(i, a).enters()
}

func (v *visitor) returned() bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}

// await waits until Enter has returned.
func (v *visitor) await(what string) {
	v.space.Helper()
	select {
	case <-v.done:
	case <-time.After(v.space.Patience):
		v.space.Fatalf("%v was not %s within %s", v, what, v.space.Patience)
	}
}

// enters waits for the visitor's turn.
func (v *visitor) enters() *visitor {
	v.space.Helper()
	v.await("let in")
	if v.err != nil {
		v.space.Fatalf("%v: %v; expected its turn", v, v.err)
	}
	return v
}

// stillWaits makes sure that a visitor still waits, after all engines have done other
// things.
func (v *visitor) stillWaits(why string) {
	v.space.Helper()
	v.space.busy()
	if v.returned() {
		v.space.Fatalf("%v returned with error %v though %s", v, v.err, why)
	}
}

// busy has a visitor enter and leave another queue of each engine. After that,
// an engine that is about to do something wrong has had time to do it.
func (s *space) busy() {
	s.Helper()
	for i := range 2 * len(s.engines) {
		a := s.arrival()
		a.Queue = s.name("another_")
		s.enter(i, a).leave()
	}
}

// leave ends the visitor's turn.
func (v *visitor) leave() {
	v.left = true
	v.space.judge.leave(v)
	v.turn.Leave()
}

// refused waits for the visitor's refusal, and until its ticket is gone from all
// engines.
func (v *visitor) refused(reason serializer.Reason, cause error) *serializer.Refused {
	v.space.Helper()
	refused := v.refusal(reason, cause)
	for _, e := range v.space.engines {
		v.gone(e)
	}
	return refused
}

// refusal waits for the visitor's refusal.
func (v *visitor) refusal(reason serializer.Reason, cause error) *serializer.Refused {
	v.space.Helper()
	v.await("refused")
	refused, ok := errors.AsType[*serializer.Refused](v.err)
	if !ok {
		v.space.Fatalf("%v: error %v; expected a *serializer.Refused", v, v.err)
	}
	if refused.Reason != reason || !errors.Is(v.err, cause) || refused.Queue != v.arrival.Queue {
		v.space.Errorf("%v: refused by queue %q for %q: %v; expected %q: %v", v, refused.Queue, refused.Reason, refused.Err, reason, cause)
	}
	return refused
}

// gone waits until an engine no longer lists the visitor's ticket.
func (v *visitor) gone(e serializer.Engine) {
	v.space.Helper()
	v.space.until(fmt.Sprintf("the ticket of %v is gone", v), func() bool {
		_, listed := v.ticketBy(e)
		return !listed
	})
}

// expectRevoke waits until the visitor's turn is revoked.
func (v *visitor) expectRevoke(cause error) {
	v.space.Helper()
	select {
	case got := <-v.revoked:
		if !errors.Is(got, cause) {
			v.space.Errorf("%v: revoked with %v; expected %v", v, got, cause)
		}
	case <-time.After(v.space.Patience):
		v.space.Fatalf("%v: Revoke was not called", v)
	}
}

// expectNoRevoke makes sure that Revoke was not called for a visitor, or not again.
func (v *visitor) expectNoRevoke() {
	v.space.Helper()
	v.space.busy()
	select {
	case cause := <-v.revoked:
		v.space.Errorf("%v: Revoke was called with %v; expected no call", v, cause)
	default:
	}
}

// ticket finds the visitor's ticket in the list of its engine.
func (v *visitor) ticket() (serializer.TicketState, bool) {
	v.space.Helper()
	return v.ticketBy(v.engine)
}

// ticketBy finds the visitor's ticket in the list of any engine.
func (v *visitor) ticketBy(e serializer.Engine) (serializer.TicketState, bool) {
	v.space.Helper()
	tickets := v.space.queue(e, v.arrival.Queue).Tickets
	i := slices.IndexFunc(tickets, func(t serializer.TicketState) bool { return t.Client == v.arrival.Client.String() })
	if i < 0 {
		return serializer.TicketState{}, false
	}
	return tickets[i], true
}

// token is the number of the visitor's ticket, as it is listed.
func (v *visitor) token() uint64 {
	v.space.Helper()
	state, _ := v.ticket()
	token, err := strconv.ParseUint(state.Token, 10, 64)
	if err != nil {
		v.space.Fatalf("%v: token %q in the list: %v", v, state.Token, err)
	}
	return token
}

// list is what an engine lists.
func (s *space) list(e serializer.Engine) []serializer.QueueState {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	queues, err := e.Queues(ctx)
	if err != nil {
		s.Fatalf("listing queues: %v", err)
	}
	return queues
}

// queue is what an engine lists of one queue; the zero value if there is none.
func (s *space) queue(e serializer.Engine, name string) serializer.QueueState {
	s.Helper()
	for _, q := range s.list(e) {
		if q.Prefix == name {
			return q
		}
	}
	return serializer.QueueState{}
}

// evict takes a ticket out.
func (s *space) evict(i int, queue string, token uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	return s.on(i).Evict(ctx, queue, token)
}

// until waits for what must happen.
func (s *space) until(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(s.Patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("gave up waiting until %s", what)
		}
	}
}

// end ends all visits, and closes the engines.
func (s *space) end() {
	s.arriving.Lock()
	visitors := s.visitors
	s.arriving.Unlock()
	for _, v := range visitors {
		v.hangUp(errEnd)
	}
	for _, v := range visitors {
		select {
		case <-v.done:
			if v.turn != nil && !v.left {
				v.leave()
			}
		case <-time.After(s.Patience):
			s.Errorf("%v did not return though its context is done", v)
			return // closing could wait for ever, too
		}
	}
	for _, e := range s.engines {
		s.checkEmpty(e)
		if err := e.Close(); err != nil {
			s.Errorf("closing the engine: %v", err)
		}
	}
}

// checkEmpty finds tickets that are left after all visitors have gone.
func (s *space) checkEmpty(e serializer.Engine) {
	s.Helper()
	for deadline := time.Now().Add(s.Patience); ; time.Sleep(time.Millisecond) {
		queues, err := e.Queues(context.Background())
		if err != nil || len(queues) == 0 { // a closed engine need not know
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("tickets are left after all visitors have gone: %+v", queues)
			return
		}
	}
}

var errEnd = errors.New("the case has ended")
