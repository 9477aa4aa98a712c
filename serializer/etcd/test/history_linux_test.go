package test

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

var historyTime = flag.Duration("for", 0, "how long TestHistories goes on; at least a round")

// besieged is a cluster with three processes, and links that can be parted.
type besieged struct {
	t       *testing.T
	trio    *trio
	boss    *operator
	links   [3][]*relay // of each process
	engines []*engine

	other *testetcd.Member

	endedLeases bool // etcd has, when a frozen member woke up in this round
}

const besiegedTTL = 5 * time.Second

func besiege(t *testing.T) *besieged {
	t.Helper()
	b := &besieged{t: t, trio: startDebianTrio(t, "--auth-token-ttl", "2", "--bcrypt-cost", "4")}
	b.boss = demandLogin(t, b.trio.endpoints...)
	b.other = testetcd.Start(t)
	for i := range b.links {
		var endpoints []string
		for _, to := range b.trio.endpoints {
			link := startRelay(t, to)
			b.links[i] = append(b.links[i], link)
			endpoints = append(endpoints, link.url())
		}
		b.engines = append(b.engines, open(t, etcd.Options{
			Username: "orderly", Password: "secret", TTL: besiegedTTL,
		}, endpoints...))
	}
	return b
}

// faults are what happens to the cluster, each for a while.
func (b *besieged) faults() map[string]func(pause func(time.Duration)) {
	someone := func() *process { return b.trio.members[rand.IntN(3)] }
	part := func(parted bool, links []*relay) {
		for _, link := range links {
			link.part(parted)
		}
	}
	return map[string]func(pause func(time.Duration)){
		"a member killed": func(pause func(time.Duration)) {
			m := someone()
			m.kill()
			pause(3 * time.Second)
			m.start(b.t)
		},
		"a member frozen": func(pause func(time.Duration)) {
			m := someone()
			m.signal(b.t, syscall.SIGSTOP)
			pause(besiegedTTL + time.Second)
			before := leasesLost(b.engines)
			m.signal(b.t, syscall.SIGCONT)
			b.endedLeases = b.endedLeases || wait.Poll(besiegedTTL/2, func() bool { return leasesLost(b.engines) > before })
		},
		"a process cut off": func(pause func(time.Duration)) {
			links := b.links[rand.IntN(3)]
			part(true, links)
			pause(besiegedTTL + time.Second)
			part(false, links)
		},
		"a process led to an empty cluster": func(pause func(time.Duration)) {
			links := b.links[rand.IntN(3)]
			for _, link := range links {
				link.lead(b.other.URL)
			}
			pause(2*besiegedTTL + time.Second)
			for i, link := range links {
				link.lead(b.trio.endpoints[i])
			}
		},
		"a process cut off from one member": func(pause func(time.Duration)) {
			links := b.links[rand.IntN(3)][:1]
			part(true, links)
			pause(2 * time.Second)
			part(false, links)
		},
		"connections broken": func(pause func(time.Duration)) {
			for range 5 {
				for _, links := range b.links {
					for _, link := range links {
						link.cut()
					}
				}
				pause(200 * time.Millisecond)
			}
		},
		"history compacted": func(func(time.Duration)) {
			b.boss.do(func(ctx context.Context, c *clientv3.Client) error {
				answer, err := c.Get(ctx, "x")
				if err != nil {
					return err
				}
				return second(c.Compact(ctx, answer.Header.Revision))
			})
		},
		"tokens ended": func(pause func(time.Duration)) {
			b.boss.do(password("other"))
			pause(500 * time.Millisecond)
			b.boss.do(password("secret"))
		},
	}
}

// TestHistories has clients of three processes take turns. Meanwhile, members are killed
// and frozen, links are parted and broken, history is compacted, and tokens expire. The
// test checks whether a lock with growing tokens explains what the clients have seen. No
// process is stopped here, so two must never have been inside at once; TestFaults stops
// processes, too. The exception is an old leader of etcd that wakes up and ends leases.
func TestHistories(t *testing.T) {
	b := besiege(t)
	total, refused, stalled, ended, seen := 0, new(atomic.Int64), 0, 0, make(map[string]int)
	for start := time.Now(); ; {
		o := newOracle()
		stall := b.round(o, refused, seen)
		total += o.entries
		if stall > besiegedTTL/10 {
			// The machine kept this process from running for longer than the
			// margin: then two may be inside, as the documentation says.
			stalled++
		} else if result := o.judge(); result != porcupine.Ok {
			if !b.endedLeases {
				t.Fatalf("porcupine: a history of %d turns is %s", o.entries, result)
			}
			ended++
		}
		if time.Since(start) >= *historyTime {
			break
		}
	}
	t.Logf("%d turns, %d refused, faults %v; %d rounds not judged, because this process did not run for %s; %d rounds with two inside, after etcd had ended leases",
		total, refused.Load(), seen, stalled, besiegedTTL/10, ended)
	if total < 50 {
		t.Errorf("only %d turns: the test shows nothing", total)
	}
}

// visit is a turn, which counts until it is revoked.
func (o *oracle) visit(e *engine, client int, refused *atomic.Int64) {
	s := &hold{client: client, asked: o.now()}
	a := arrivalFor(30*time.Second, "a_")
	a.Revoke = func(error) { o.force(s) }
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		refused.Add(1)
		time.Sleep(50 * time.Millisecond)
		return
	}
	defer turn.Leave()
	s.token = turn.Token()
	o.enter(s)
	defer o.leave(s)
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
}

// round runs the clients for some time with faults, and returns the longest
// time for which this process did not run.
func (b *besieged) round(o *oracle, refused *atomic.Int64, seen map[string]int) (stall time.Duration) {
	b.endedLeases = false
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { stall = longestStall(stop) })
	for i, e := range b.engines {
		for j := range 2 {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						o.visit(e, 2*i+j, refused)
					}
				}
			})
		}
	}
	for name, fault := range b.faults() {
		seen[name]++
		fault(time.Sleep)
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
