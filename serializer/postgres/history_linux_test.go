package postgres

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
)

var historyTime = flag.Duration("for", 0, "how long TestHistories goes on; at least a round")

// oracle records who is inside from when to when.
type oracle struct {
	start time.Time

	mu      sync.Mutex
	history []*hold
}

// hold is one visit.
type hold struct {
	client            int
	token             uint64
	asked, came, went time.Duration // since the oracle began
}

func (o *oracle) now() time.Duration { return time.Since(o.start) }

// leave notes the end of a hold, or of the time for which its engine vouches.
func (o *oracle) leave(h *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h.went = min(h.went, o.now())
}

// visit is a turn, which counts until it is revoked.
func (o *oracle) visit(e *engine, client int) error {
	h := &hold{client: client, asked: o.now(), went: math.MaxInt64}
	a := arrivalFor(30 * time.Second)
	a.Revoke = func(error) { o.leave(h) }
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		return err
	}
	defer turn.Leave()
	defer o.leave(h)
	o.mu.Lock()
	h.token, h.came = turn.Token(), o.now()
	o.history = append(o.history, h)
	o.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	return nil
}

// lock is the state of porcupine's model: who holds the queue, and the greatest token so
// far.
type lock struct{ holder, greatest uint64 }

// operation is an entry or a leaving.
type operation struct {
	leaves bool
	token  uint64
}

// lockModel is a lock that is taken by one at a time, in the order of tokens.
var lockModel = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		l, op := state.(lock), input.(operation)
		if op.leaves {
			return l.holder == op.token, lock{0, l.greatest}
		}
		return l.holder == 0 && op.token > l.greatest, lock{op.token, op.token}
	},
}

// judge has porcupine look for an order of all entries and leavings in which at most one
// holds the lock, and each token is greater than the one before.
func (o *oracle) judge() porcupine.CheckResult {
	o.mu.Lock()
	defer o.mu.Unlock()
	var operations []porcupine.Operation
	for i, h := range o.history {
		operations = append(operations,
			porcupine.Operation{ClientId: h.client, Input: operation{false, h.token}, Call: int64(h.asked), Return: int64(h.came)},
			porcupine.Operation{ClientId: len(o.history) + i, Input: operation{true, h.token}, Call: int64(h.went), Return: math.MaxInt64})
	}
	return porcupine.CheckOperationsTimeout(lockModel, operations, time.Minute)
}

// suspects names the first two visits, by their beginnings, of which one cannot follow the other.
func (o *oracle) suspects() string {
	slices.SortFunc(o.history, func(a, b *hold) int { return cmp.Compare(a.came, b.came) })
	for i, h := range o.history[1:] {
		if before := o.history[i]; h.token <= before.token || h.came < before.went {
			return fmt.Sprintf("%+v, then %+v", *before, *h)
		}
	}
	return "no two neighbours"
}

// The harness must detect what it is meant to detect.
func TestOracle(t *testing.T) {
	visit := func(token uint64, came, went time.Duration) *hold { return &hold{token: token, came: came, went: went} }
	for name, test := range map[string]struct {
		history []*hold
		ok      bool
	}{
		"one after the other": {[]*hold{visit(1, 1, 2), visit(2, 3, 4)}, true},
		"overlap":             {[]*hold{visit(1, 1, 4), visit(2, 3, 5)}, false},
		"inversion":           {[]*hold{visit(2, 1, 2), visit(1, 3, 4)}, false},
	} {
		o := oracle{history: test.history}
		if result := o.judge(); (result == porcupine.Ok) != test.ok {
			t.Errorf("%s: %s", name, result)
		}
	}
}

const besiegedTTL = 5 * time.Second

// besieged is a server with a standby, and three processes whose links can be parted. One
// of them comes through a pooler.
type besieged struct {
	t                *testing.T
	primary, standby *testpostgres.Server
	links            []*relay
	engines          []*engine
}

func besiege(t *testing.T) *besieged {
	b := &besieged{t: t, primary: testpostgres.Start(t)}
	makeSettable(b.primary)
	b.standby = b.primary.Standby(testpostgres.Dir(t))
	for i := range 3 {
		link := startRelay(t, b.primary.Addr)
		url := link.url()
		if i == 2 {
			url = testpostgres.StartPooler(t, link.Addr).URL()
		}
		b.links = append(b.links, link)
		b.engines = append(b.engines, open(t, Options{URL: url, TTL: besiegedTTL}))
		enterSoon(t, b.engines[i]) // some faults need the tables
	}
	return b
}

// faults are what happens, each for a while.
func (b *besieged) faults() map[string]func() {
	someone := func() *relay { return b.links[rand.IntN(len(b.links))] }
	all := func(do func(*relay)) {
		for _, link := range b.links {
			do(link)
		}
	}
	return map[string]func(){
		"the server killed": func() {
			b.primary.Kill()
			time.Sleep(time.Second)
			b.primary.Run()
		},
		"the server restarted": func() {
			b.primary.Stop()
			b.primary.Run()
		},
		"the server frozen": func() {
			b.primary.Freeze()
			time.Sleep(besiegedTTL + time.Second)
			b.primary.Thaw()
		},
		"a process cut off": func() {
			link := someone()
			link.Set(func() { link.Parted = true })
			time.Sleep(besiegedTTL + time.Second)
			link.Set(func() { link.Parted = false })
		},
		"a process led to an empty schema": func() {
			b.primary.Query("orderly", "CREATE SCHEMA IF NOT EXISTS elsewhere; ALTER ROLE orderly SET search_path = elsewhere")
			someone().Cut()
			time.Sleep(2*besiegedTTL + time.Second)
			b.primary.Query("orderly", "ALTER ROLE orderly RESET search_path")
			b.primary.Query("orderly", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
		},
		"answers held": func() {
			link := someone()
			link.Set(func() { link.Deaf = true })
			time.Sleep(2 * time.Second)
			link.Set(func() { link.Deaf = false })
		},
		"answers to commits lost": func() {
			for range 20 {
				all(func(link *relay) { link.Set(func() { link.Loses = "COMMIT" }) })
				time.Sleep(100 * time.Millisecond)
			}
		},
		"connections broken": func() {
			for range 5 {
				all(func(link *relay) { link.Cut() })
				time.Sleep(200 * time.Millisecond)
			}
		},
		"tables locked": func() {
			b.primary.Query("orderly", "BEGIN; LOCK orderly_tickets; SELECT pg_sleep(3); COMMIT")
			b.primary.Query("orderly", "VACUUM FULL orderly_tickets")
		},
		"the clock set": func() {
			ahead := []string{"1 hour", "0", "-1 hour"}[rand.IntN(3)]
			b.primary.Query("orderly", "UPDATE test.clock SET ahead = '"+ahead+"'")
		},
		"conflicts": func() {
			b.primary.Query("orderly", `CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF random() < 0.3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$;
				CREATE TRIGGER conflict BEFORE INSERT OR UPDATE ON orderly_tickets FOR EACH ROW EXECUTE FUNCTION conflict()`)
			time.Sleep(2 * time.Second)
			b.primary.Query("orderly", "DROP FUNCTION conflict CASCADE")
		},
		"a standby promoted": func() {
			b.primary.Kill()
			b.standby.Promote()
			all(func(link *relay) { link.Set(func() { link.To = b.standby.Addr }) })
			b.primary, b.standby = b.standby, b.standby.Standby(testpostgres.Dir(b.t))
			time.Sleep(besiegedTTL + time.Second)
		},
	}
}

// TestHistories has clients of three processes take turns. Meanwhile, the server and the
// links to it have faults. The test checks whether a lock with growing tokens explains what
// the clients have seen. No process is stopped here, so two must never be inside.
func TestHistories(t *testing.T) {
	b := besiege(t)
	total, refused, stalled, seen := 0, new(atomic.Int64), 0, make(map[string]int)
	for start := time.Now(); ; {
		o := &oracle{start: time.Now()}
		stall := b.round(o, refused, seen)
		total += len(o.history)
		if stall > besiegedTTL/10 {
			// The machine kept this process from running for longer than the margin: then
			// two may be inside, as the documentation says.
			stalled++
		} else if result := o.judge(); result != porcupine.Ok {
			t.Fatalf("porcupine: a history of %d turns is %s; %s", len(o.history), result, o.suspects())
		}
		if time.Since(start) >= *historyTime {
			break
		}
	}
	t.Logf("%d turns, %d refused, faults %v; %d rounds not judged, because this process did not run for %s",
		total, refused.Load(), seen, stalled, besiegedTTL/10)
	if total < 50 {
		t.Errorf("only %d turns: the test shows nothing", total)
	}
}

// round runs the clients for some time with all faults, and returns the longest time for
// which this process did not run.
func (b *besieged) round(o *oracle, refused *atomic.Int64, seen map[string]int) (stall time.Duration) {
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { stall = longestStall(stop) })
	for client := range 2 * len(b.engines) {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := o.visit(b.engines[client/2], client); err != nil {
					refused.Add(1)
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
	for name, fault := range b.faults() {
		seen[name]++
		fault()
		time.Sleep(500 * time.Millisecond)
	}
	close(stop)
	group.Wait()
	return stall
}

// longestStall watches for times in which nothing here runs.
func longestStall(stop <-chan struct{}) (stall time.Duration) {
	const tick = 10 * time.Millisecond
	for {
		before := time.Now()
		select {
		case <-stop:
			return stall
		case <-time.After(tick):
			stall = max(stall, time.Since(before)-tick)
		}
	}
}
