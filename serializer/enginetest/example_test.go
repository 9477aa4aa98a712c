package enginetest_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/enginetest"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// Desk keeps queues in the memory of this process. Its zero value is ready.
type Desk struct {
	mu     sync.Mutex
	queues map[string]*queue.Queue[*ticket]
	last   uint64
	closed bool
}

// ticket is a place in a queue, and the turn of its holder.
type ticket struct {
	queue.Item[*ticket]
	desk     *Desk
	arrival  serializer.Arrival
	token    uint64
	position int
	arrived  time.Time
	entered  time.Time
	gone     bool
	revoked  bool
	ready    chan error // one message: nil for the turn, or why it will not come
}

func (t *ticket) Before(o *ticket) bool { return t.token < o.token }
func (t *ticket) Local() bool           { return true }
func (t *ticket) Token() uint64         { return t.token }
func (t *ticket) Position() int         { return t.position }

func (t *ticket) Leave() {
	t.desk.mu.Lock()
	defer t.desk.mu.Unlock()
	t.desk.removeLocked(t)
}

func (d *Desk) Path() string { return "desk" }

func (d *Desk) Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	t := &ticket{desk: d, arrival: a, arrived: time.Now(), ready: make(chan error, 1)}
	t.Rule = a.Rule
	if a.DropOldest {
		t.MaxWaiting = a.MaxWaiting
	}
	err := d.join(t)
	if err == nil {
		if a.Joined != nil {
			a.Joined()
		}
		err = t.await(ctx)
	}
	if err != nil {
		return nil, &serializer.Refused{Reason: serializer.ReasonOf(err), Queue: a.Queue, Position: t.position, Token: t.token, Err: err}
	}
	return t, nil
}

// join gives out a ticket.
func (d *Desk) join(t *ticket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queues[t.arrival.Queue]
	if q == nil {
		q = new(queue.Queue[*ticket])
	}
	t.position = q.Len()
	switch {
	case d.closed:
		return serializer.ErrClosed
	case t.arrival.MaxWaiting > 0 && !t.arrival.DropOldest && q.Waiting() >= t.arrival.MaxWaiting:
		return serializer.ErrFull
	}
	if d.queues == nil {
		d.queues = make(map[string]*queue.Queue[*ticket])
	}
	d.queues[t.arrival.Queue] = q
	d.last++
	t.token = d.last
	q.Insert(t)
	d.admitLocked(q)
	return nil
}

// admitLocked lets in all whose turn it is, and refuses the first of those that wait
// if too many do.
func (d *Desk) admitLocked(q *queue.Queue[*ticket]) {
	for t := q.Admit(); t != nil; t = q.Admit() {
		t.entered = time.Now()
		t.ready <- nil
	}
	if t := q.Superseded(0); t != nil {
		d.dismissLocked(t, serializer.ErrSuperseded)
	}
}

// await waits for the turn. A caller that gives up leaves no ticket, not even if its
// turn came in the same moment.
func (t *ticket) await(ctx context.Context) error {
	var expired <-chan time.Time
	if t.arrival.Timeout > 0 {
		expired = time.After(t.arrival.Timeout)
	}
	select {
	case err := <-t.ready:
		return err
	case <-expired:
		t.Leave()
		return serializer.ErrTimeout
	case <-ctx.Done():
		t.Leave()
		return context.Cause(ctx)
	}
}

// removeLocked takes a ticket out, once, and lets in those behind it.
func (d *Desk) removeLocked(t *ticket) {
	if t.gone {
		return
	}
	t.gone = true
	q := d.queues[t.arrival.Queue]
	q.Remove(t)
	if !d.closed {
		d.admitLocked(q)
	}
	if q.Len() == 0 {
		delete(d.queues, t.arrival.Queue)
	}
}

func (d *Desk) Queues(context.Context) ([]serializer.QueueState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var states []serializer.QueueState
	for _, name := range slices.Sorted(maps.Keys(d.queues)) {
		state := serializer.QueueState{Path: d.Path(), Prefix: name}
		for t := range d.queues[name].All() {
			state.Add(t.stateLocked(), t.Rule)
		}
		states = append(states, state)
	}
	return states, nil
}

func (t *ticket) stateLocked() serializer.TicketState {
	state := serializer.StateWaiting
	if t.Admitted() {
		state = serializer.StateInside
	}
	since := t.entered
	if since.IsZero() {
		since = t.arrived
	}
	return serializer.TicketState{
		Token:     strconv.FormatUint(t.token, 10),
		State:     state,
		Since:     since,
		Arrived:   t.arrived,
		Entered:   t.entered,
		Client:    t.arrival.Client.String(),
		Owner:     "this process",
		Requester: t.arrival.Requester,
	}
}

func (d *Desk) Evict(_ context.Context, name string, token uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := cmp.Or(d.queues[name], new(queue.Queue[*ticket]))
	for t := range q.All() {
		if t.token == token {
			d.dismissLocked(t, serializer.ErrEvicted)
			return nil
		}
	}
	return serializer.ErrNoTicket
}

// dismissLocked refuses a waiter, and revokes the turn of a holder.
func (d *Desk) dismissLocked(t *ticket, cause error) {
	switch {
	case !t.Admitted():
		t.ready <- cause
		d.removeLocked(t)
	case !t.revoked && t.arrival.Revoke != nil:
		t.revoked = true
		go t.arrival.Revoke(cause)
	}
}

func (d *Desk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, q := range d.queues {
		for t := range q.All() {
			d.dismissLocked(t, serializer.ErrClosed)
		}
	}
	return nil
}

func TestDesk(t *testing.T) {
	enginetest.Run(t, enginetest.Options{Private: true}, func(testing.TB, int) []serializer.Engine {
		return []serializer.Engine{new(Desk)}
	})
}
