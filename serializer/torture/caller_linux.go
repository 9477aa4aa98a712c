package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The outcomes of an arrival that was refused: these, and then the reasons.
const (
	starved = iota // timed out although nothing takes that long
	failed         // no engine could be opened
	reasons
)

func outcomeOf(reason serializer.Reason) int {
	return reasons + slices.Index(serializer.Reasons(), reason)
}

// arrives is an arrival of a goroutine in a queue.
func (p *process) arrives(g, queue int, r *rand.Rand) *caller {
	a := queues[queue]
	a.Rule.Shared = a.Rule.Shared && r.IntN(10) < 8
	a.Client = fmt.Sprintf("127.%d.%d.%d:%d", byte(p.Number>>8), byte(p.Number), byte(g), r.IntN(1<<16))
	a.Timeout, a.Requester = p.Patience, anybody{}
	return &caller{process: p, record: record{goroutine: g, queue: queue, reader: a.Rule.Shared}, rand: r, arrival: a}
}

// impatience is how long impatient callers wait at most.
const impatience = 20 * time.Millisecond

// call enters queues until the run ends. A few callers are impatient, or hang up.
func (p *process) call(g int) {
	r := rand.New(rand.NewPCG(p.Seed, uint64(p.Number)<<16|uint64(g)))
	for !p.stopping.Load() {
		c := p.arrives(g, randomQueue(r), r)
		c.engine = p.engine.Load()
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		switch r.IntN(50) {
		case 0:
			c.arrival.Timeout = time.Duration(1 + r.Int64N(int64(impatience)))
		case 1:
			ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Int64N(int64(impatience))))
		}
		entered := c.enter(ctx)
		cancel()
		if !entered {
			time.Sleep(time.Duration(1+r.IntN(5)) * time.Millisecond)
		}
	}
}

// caller is one arrival, and its record.
type caller struct {
	*process
	record
	rand    *rand.Rand
	arrival serializer.Arrival
	engine  *generation
}

// enter is an arrival from Enter to Leave.
func (c *caller) enter(ctx context.Context) (entered bool) {
	var revoked atomic.Bool
	c.arrival.Revoke = func(cause error) { revoked.Store(!errors.Is(cause, serializer.ErrClosed)) }
	e := c.engine
	c.opened, c.arrived = e.opened, now()
	c.began = cmp.Or(c.began, c.arrived)
	overdue := time.AfterFunc(c.arrival.Timeout+graceTime, func() { panic("lost: a call did not return in time") })
	turn, err := e.Enter(ctx, c.arrival)
	overdue.Stop()
	if err != nil {
		c.refuse(err)
		return false
	}
	c.token, c.slot = turn.Token(), slices.Index(slotNames, turn.Slot())
	c.put(enters, c.record)
	if c.queue == 0 {
		c.pass(inside)
	}
	if c.queue < len(queues)-1 && c.rand.IntN(nestedShare) == 0 {
		c.nest(ctx, turn)
	}
	spendHold(c.rand)
	if revoked.Load() {
		c.put(revokes, c.record)
	}
	c.put(leaves, c.record)
	turn.Leave()
	return true
}

// nestedShare is how many callers there are to one that takes another turn while it is inside.
const nestedShare = 20

// nest enters another queue of the same engine. All take their turns in the order of the
// queues, so that nobody waits for each other.
func (c *caller) nest(ctx context.Context, held serializer.Turn) {
	n := c.arrives(c.goroutine, c.queue+1+c.rand.IntN(len(queues)-1-c.queue), c.rand)
	n.engine, n.began = c.engine, c.began
	n.arrival.Holds = append(slices.Clone(c.arrival.Holds), held)
	n.enter(ctx)
}

func (c *caller) refuse(err error) {
	c.outcome = failed
	if why, ok := errors.AsType[*serializer.Refused](err); ok {
		c.token, c.outcome = why.Token, outcomeOf(why.Reason)
		if why.Reason == serializer.ReasonTimeout && c.arrival.Timeout == c.Patience {
			c.outcome = starved
		}
	}
	c.put(refuses, c.record)
}

// spendHold spends the time inside. Mostly it is almost none, so that the queue is the bottleneck.
// Sometimes it is long enough to show others who are admitted by mistake.
func spendHold(r *rand.Rand) {
	switch n := r.IntN(1000); {
	case n >= 990:
		time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
	case n >= 600:
		runtime.Gosched()
	}
}

// queues are those for which the processes compete, as arrivals in them. They have similar names: each must be
// a separate queue. If readers come, writers come, too.
var queues = []serializer.Arrival{
	{Queue: "a_"},
	{Queue: "a"},
	{Queue: "a_b_"},
	{Queue: "a0"},
	{Queue: ""},
	{Queue: "a_0000"},
	{Queue: "limited_", Rule: serializer.Rule{Limit: 3}},
	{Queue: "slots_", Rule: serializer.Rule{Limit: 3}, Slots: func() []string { return slotNames }},
	{Queue: "mixed_", Rule: serializer.Rule{Shared: true}},
	{Queue: "latest_", MaxWaiting: 1, DropOldest: true},
	{Queue: "latest_limited_", Rule: serializer.Rule{Limit: 3}, MaxWaiting: 2, DropOldest: true},
	{Queue: "latest_mixed_", Rule: serializer.Rule{Shared: true}, MaxWaiting: 4, DropOldest: true},
}

// slotNames are those of each queue with slots.
var slotNames = []string{"a", "b", "c"}

// randomQueue is the first one in a third of the cases.
func randomQueue(r *rand.Rand) int { return max(r.IntN(3*len(queues)/2)-len(queues)/2, 0) }

// pausable are names that can be paused: a queue without a name cannot.
var pausable = []string{"a_", "a", "a_b_", "a0", "limited_", "slots_", "mixed_", "latest_", "a*", "latest_*"}

// queuesOf returns the queues that a name of a pause stands for.
func queuesOf(name string) (of []int) {
	for i, q := range queues {
		if paused, _ := path.Match(name, q.Queue); paused {
			of = append(of, i)
		}
	}
	return of
}

// anybody marks local tickets in lists.
type anybody struct{}

func (anybody) Request() (r serializer.Request) { return r }
