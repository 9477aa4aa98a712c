package serialize

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/engineswitch"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// opened opens an engine as a handler does, until the end of the test.
func opened(t *testing.T, module EngineModule, path string) *engineRef {
	t.Helper()
	e, err := openEngine(module, path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.release(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// arriving is a request on its way through a queue.
type arriving struct {
	turn chan serializer.Turn
	err  chan error
	stop context.CancelFunc
}

// arrives starts an arrival, and returns once it is in the queue.
func arrives(t *testing.T, e *engineRef, a serializer.Arrival) arriving {
	t.Helper()
	before := tickets(t)
	w := comes(t, e, a)
	wait.Until(t, "one more ticket", func() bool { return tickets(t) > before })
	return w
}

// enterBy takes a turn in the way in which a request does: see visit.enter.
func enterBy(ctx context.Context, e *engineRef, a serializer.Arrival) (serializer.Turn, error) {
	v := &visit{handler: &Handler{engine: e}, engine: e, queue: a.Queue}
	err := v.arrive(ctx, &a)
	if err == nil {
		v.turn, err = e.Engine.Enter(ctx, a)
	}
	if _, settleErr := v.local.Settle(v.turn, err); settleErr != nil {
		return nil, settleErr
	}
	return &v.local, nil
}

func comes(t *testing.T, e *engineRef, a serializer.Arrival) arriving {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := arriving{turn: make(chan serializer.Turn, 1), err: make(chan error, 1), stop: stop}
	if a.Queue == "" {
		a.Queue = "a_"
	}
	go func() {
		turn, err := enterBy(ctx, e, a)
		if err != nil {
			w.err <- err
			return
		}
		w.turn <- turn
	}()
	return w
}

// tickets counts the tickets in all queues of this process.
func tickets(t *testing.T) (n int) {
	t.Helper()
	for _, q := range allQueues(t.Context()) {
		n += len(q.Tickets)
	}
	return n
}

func (w arriving) enters(t *testing.T) serializer.Turn {
	t.Helper()
	select {
	case turn := <-w.turn:
		return turn
	case err := <-w.err:
		t.Fatalf("refused: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("waited in vain for the turn")
	}
	return nil
}

func (w arriving) isRefused(t *testing.T, reason serializer.Reason) {
	t.Helper()
	select {
	case turn := <-w.turn:
		turn.Leave()
		t.Fatalf("entered; expected a refusal by %s", reason)
	case err := <-w.err:
		refused, ok := errors.AsType[*serializer.Refused](err)
		if !ok || refused.Reason != reason {
			t.Fatalf("error %v; expected a refusal by %s", err, reason)
		}
	case <-time.After(time.Minute):
		t.Fatalf("waited in vain for a refusal by %s", reason)
	}
}

// out makes sure that all of these still wait after a while.
func out(t *testing.T, waiters ...arriving) {
	t.Helper()
	time.Sleep(30 * time.Millisecond)
	for i, w := range waiters {
		if len(w.turn) > 0 || len(w.err) > 0 {
			t.Fatalf("number %d does not wait", i)
		}
	}
}

// engineChanges are the ways to change engines.
var engineChanges = []struct{ before, after EngineModule }{
	{FileEngine{}, MemoryEngine{}},
	{MemoryEngine{}, FileEngine{}},
}

// Bug: a reload that changed the engine let a request in beside the old holder.
// The first request of the new engine waits for the last one of the old engine,
// and all keep their order.
func TestChangeOfEngine(t *testing.T) {
	for _, c := range engineChanges {
		t.Run(fmt.Sprintf("%T to %T", c.before, c.after), func(t *testing.T) {
			dir := t.TempDir()
			before, after := opened(t, c.before, dir), opened(t, c.after, dir)
			holder := arrives(t, before, serializer.Arrival{}).enters(t)
			waiter := arrives(t, before, serializer.Arrival{})
			first := arrives(t, after, serializer.Arrival{})
			second := arrives(t, after, serializer.Arrival{})
			out(t, waiter, first, second)

			other := comes(t, after, serializer.Arrival{Queue: "b_"}).enters(t) // another queue
			other.Leave()

			holder.Leave()
			turn := waiter.enters(t)
			out(t, first, second)
			late := arrives(t, before, serializer.Arrival{}) // of the old configuration
			turn.Leave()
			turn = first.enters(t)
			if turn.Position() != 2 {
				t.Errorf("position %d; expected 2", turn.Position())
			}
			out(t, second, late)
			turn.Leave()
			turn = second.enters(t)
			out(t, late)
			turn.Leave()
			late.enters(t).Leave()
			wait.Until(t, "no local queues", func() bool { return engineswitch.Count(dir) == 0 })
		})
	}
}

// A request that waits for those of the old engine can be refused as in any
// queue, and holds nobody up after that.
func TestRefusedDuringChangeOfEngine(t *testing.T) {
	for _, c := range engineChanges {
		t.Run(fmt.Sprintf("%T to %T", c.before, c.after), func(t *testing.T) {
			dir := t.TempDir()
			before, after := opened(t, c.before, dir), opened(t, c.after, dir)
			holder := arrives(t, before, serializer.Arrival{}).enters(t)
			evicted := arrives(t, after, serializer.Arrival{})
			comes(t, after, serializer.Arrival{Timeout: 20 * time.Millisecond}).isRefused(t, serializer.ReasonTimeout)
			gone := arrives(t, after, serializer.Arrival{})
			comes(t, after, serializer.Arrival{MaxWaiting: 2}).isRefused(t, serializer.ReasonFull)
			last := arrives(t, after, serializer.Arrival{MaxWaiting: 3, Timeout: time.Minute})
			gone.stop()
			gone.isRefused(t, serializer.ReasonGone)

			found, err := findQueue(t.Context(), dir+"/a_")
			if err != nil {
				t.Fatal(err)
			}
			if err := found.evict(t.Context(), 1); !errors.Is(err, serializer.ErrNoTicket) {
				t.Errorf("evicting a ticket that is not there: %v", err)
			}
			var token string
			for _, q := range allQueues(t.Context()) {
				for _, ticket := range q.Tickets {
					if q.Path == dir && token == "" && ticket.State == serializer.StateWaiting {
						token = ticket.Token
					}
				}
			}
			var number uint64
			if _, err := fmt.Sscan(token, &number); err != nil {
				t.Fatalf("token %q: %v", token, err)
			}
			if err := after.Evict(t.Context(), "a_", number); err != nil {
				t.Fatal(err)
			}
			evicted.isRefused(t, serializer.ReasonEvicted)
			out(t, last)
			holder.Leave()
			last.enters(t).Leave()
			wait.Until(t, "no local queues", func() bool { return engineswitch.Count(dir) == 0 })
		})
	}
}

// An engine that closes refuses the requests that wait for those of the former
// engine.
func TestCloseDuringChangeOfEngine(t *testing.T) {
	dir := t.TempDir()
	before, after := opened(t, MemoryEngine{}, dir), opened(t, FileEngine{}, dir)
	holder := arrives(t, before, serializer.Arrival{}).enters(t)
	waiter := arrives(t, after, serializer.Arrival{})
	if err := after.Close(); err != nil {
		t.Fatal(err)
	}
	waiter.isRefused(t, serializer.ReasonStorage)
	holder.Leave()
}

// Bug: if a deployment moved a symbolic link, and a reload followed, the new
// configuration let a request in beside the holder of the old one.
func TestMovedLink(t *testing.T) {
	for _, module := range []EngineModule{FileEngine{}, MemoryEngine{}} {
		t.Run(fmt.Sprintf("%T", module), func(t *testing.T) {
			root := t.TempDir()
			link := filepath.Join(root, "current")
			deploy := func(release string) {
				err := errors.Join(os.MkdirAll(filepath.Join(root, release), 0o750),
					os.Symlink(release, link+".new"), os.Rename(link+".new", link))
				if err != nil {
					t.Fatal(err)
				}
			}
			deploy("release-1")
			straight := opened(t, module, filepath.Join(root, "release-1", "locks")) // by its other name
			before := opened(t, module, filepath.Join(link, "locks"))
			if straight.key != before.key {
				t.Errorf("two names of one directory are engines %s and %s", straight.key, before.key)
			}
			holder := arrives(t, before, serializer.Arrival{}).enters(t)
			deploy("release-2")
			after := opened(t, module, filepath.Join(link, "locks"))
			direct := opened(t, module, filepath.Join(root, "release-2", "locks"))
			first := arrives(t, after, serializer.Arrival{})
			second := comes(t, direct, serializer.Arrival{})
			out(t, first)
			holder.Leave()
			turn := first.enters(t)
			out(t, second)
			turn.Leave()
			second.enters(t).Leave()
		})
	}
}

// Bug: a missing directory below a link had two names, one before it was made
// and one after. So nested blocks of one queue waited for themselves.
func TestMissingDirectoryBelowLink(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "real"), 0o750), os.Symlink("real", filepath.Join(root, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, module := range []EngineModule{MemoryEngine{}, FileEngine{}} { // only files make it
		first := opened(t, module, filepath.Join(root, "link", "a", "b"))
		second := opened(t, module, filepath.Join(root, "link", "a", "b"))
		third := opened(t, module, filepath.Join(root, "real", "a", "b"))
		if first.sharedEngine != second.sharedEngine || first.sharedEngine != third.sharedEngine {
			t.Errorf("%T: the engines are %s, %s and %s", module, first.key, second.key, third.key)
		}
	}
}

var changesTime = flag.Duration("changes", 0, "how long TestChangesOfEngineAtRandom goes on; at least a round")

// Whichever engines requests use, wherever the link of their path leads, and
// however they end: nobody is inside beside another.
func TestChangesOfEngineAtRandom(t *testing.T) {
	seed := rand.Uint64()
	start, rounds, entered, changed := time.Now(), 0, int64(0), 0
	for rounds == 0 || time.Since(start) < *changesTime && !t.Failed() {
		r := newChanges(t, seed+uint64(rounds))
		r.run()
		entered += r.entered.Load()
		changed += r.changed
		rounds++
	}
	t.Logf("%d rounds from seed %d: %d of %d entered, %d changes of engine or link", rounds, seed, entered, rounds*changeRequests, changed)
}

const changeRequests = 400

// changes are two sites whose configurations change all the time, while requests come.
type changes struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	link   string
	real   [2]string // where the link may lead
	leads  int       // where it does
	sites  [2]*site

	changed int
	entered atomic.Int64
	mu      sync.Mutex
	inside  map[*site]int
}

// site is what one configuration says of one site. The path is the link, or the
// directory by its own name.
type site struct {
	*engineRef
	linked bool
	leads  int // where the path leads
}

// shares reports whether two sites have one queue.
func (s *site) shares(other *site) bool { return s.linked && other.linked || s.leads == other.leads }

func newChanges(t *testing.T, seed uint64) *changes {
	root := t.TempDir()
	c := &changes{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), link: filepath.Join(root, "link"), inside: make(map[*site]int)}
	for i := range c.real {
		c.real[i] = filepath.Join(root, fmt.Sprint("real", i))
		if err := os.Mkdir(c.real[i], 0o750); err != nil {
			t.Fatal(err)
		}
	}
	c.moveLink(0)
	return c
}

func (c *changes) moveLink(to int) {
	next := c.link + ".next"
	if err := errors.Join(os.Symlink(filepath.Base(c.real[to]), next), os.Rename(next, c.link)); err != nil {
		c.t.Fatal(err)
	}
	c.leads = to
}

func (c *changes) open() *site {
	s := &site{linked: c.random.IntN(3) > 0, leads: c.leads}
	path := c.link
	if !s.linked {
		path = c.real[c.leads]
	}
	modules := []EngineModule{FileEngine{}, MemoryEngine{}}
	e, err := openEngine(modules[c.random.IntN(len(modules))], path, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	s.engineRef = e
	return s
}

func (c *changes) close(s *site) {
	if err := s.release(); err != nil {
		c.t.Error(err)
	}
}

// reload opens another engine for the requests to come; those of the old one keep it
// for as long as they need it. The link may have moved, as in a deployment.
func (c *changes) reload() {
	i := c.random.IntN(len(c.sites))
	old := c.sites[i]
	if c.random.IntN(3) == 0 {
		c.moveLink(c.random.IntN(len(c.real)))
	}
	c.sites[i] = c.open()
	c.changed++
	c.close(old)
}

func (c *changes) run() {
	for i := range c.sites {
		c.sites[i] = c.open()
	}
	var group sync.WaitGroup
	for range changeRequests {
		if c.random.IntN(20) == 0 {
			c.reload()
		}
		c.comes(&group)
		time.Sleep(time.Duration(c.random.IntN(200)) * time.Microsecond)
	}
	group.Wait()
	for _, s := range c.sites {
		c.close(s)
	}
	if n := engineswitch.Count(c.link) + engineswitch.Count(c.real[0]) + engineswitch.Count(c.real[1]); n != 0 {
		c.t.Errorf("seed %d: %d local queues are left", c.seed, n)
	}
}

// comes starts a request. It hangs up, or times out, at random.
func (c *changes) comes(group *sync.WaitGroup) {
	s := c.sites[c.random.IntN(len(c.sites))]
	if !s.acquire() {
		c.t.Fatal("the engine in use was released")
	}
	a := serializer.Arrival{Queue: "a_", Timeout: time.Minute}
	ctx, stop := context.WithCancel(c.t.Context())
	if c.random.IntN(4) == 0 {
		a.Timeout = time.Duration(c.random.IntN(20)+1) * time.Millisecond
	}
	if c.random.IntN(4) == 0 {
		time.AfterFunc(time.Duration(c.random.IntN(20))*time.Millisecond, stop)
	}
	hold := time.Duration(c.random.IntN(300)) * time.Microsecond
	group.Go(func() {
		defer c.close(s)
		defer stop()
		turn, err := enterBy(ctx, s.engineRef, a)
		if err != nil {
			return
		}
		c.enters(s)
		time.Sleep(hold)
		c.leaves(s)
		turn.Leave()
	})
}

func (c *changes) enters(s *site) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entered.Add(1)
	for other, n := range c.inside {
		if n > 0 && s.shares(other) {
			c.t.Errorf("seed %d: %s (link %v, directory %d) enters beside %s (link %v, directory %d)",
				c.seed, s.key, s.linked, s.leads, other.key, other.linked, other.leads)
		}
	}
	c.inside[s]++
}

func (c *changes) leaves(s *site) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside[s]--
}

// Requests that waited for the old engine join the new one in the order in
// which they came.
func TestOrderThroughChangeOfEngine(t *testing.T) {
	const many = 50
	for _, c := range engineChanges {
		t.Run(fmt.Sprintf("%T to %T", c.before, c.after), func(t *testing.T) {
			dir := t.TempDir()
			before, after := opened(t, c.before, dir), opened(t, c.after, dir)
			holder := arrives(t, before, serializer.Arrival{}).enters(t)
			var mu sync.Mutex
			var order []int
			var group sync.WaitGroup
			for i := range many {
				n := tickets(t)
				group.Go(func() {
					turn, err := enterBy(t.Context(), after, serializer.Arrival{Queue: "a_"})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					turn.Leave()
				})
				wait.Until(t, "one more ticket", func() bool { return tickets(t) > n })
			}
			holder.Leave()
			group.Wait()
			if len(order) != many || !slices.IsSorted(order) {
				t.Errorf("entered in the order %v", order)
			}
		})
	}
}

func BenchmarkLanes(b *testing.B) {
	e, err := openEngine(MemoryEngine{}, b.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = e.release() }()
	for name, enter := range map[string]func(context.Context, serializer.Arrival) (serializer.Turn, error){
		"with": e.Enter, "without": e.Engine.Enter,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					turn, err := enter(context.Background(), serializer.Arrival{Queue: "a_"})
					if err != nil {
						b.Error(err)
						return
					}
					turn.Leave()
				}
			})
		})
	}
}
