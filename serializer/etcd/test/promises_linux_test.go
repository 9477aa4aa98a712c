package test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testrelay"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

func TestMain(m *testing.M) {
	testlease.HoldIfAsked(openAs(etcd.Options{}))
	wait.InParallel()
	testetcd.Main(m)
}

// openAs opens stores with a login.
func openAs(o etcd.Options) testlease.Open {
	return func(address string, ttl time.Duration) (serializer.Store, error) {
		o.Endpoints, o.TTL = []string{"http://" + address}, ttl
		return etcd.Open(o)
	}
}

// server is a cluster of one, as the tests of promises need it.
type server struct {
	*standalone
	boss *operator
}

func startServer(t testing.TB, more ...string) server {
	s := startStandalone(t.(*testing.T), "etcd", append(more, "--bcrypt-cost", "4")...)
	return server{s, &operator{t.(*testing.T), []string{s.URL}}}
}

func (s server) Address() string { return strings.TrimPrefix(s.URL, "http://") }
func (s server) Kill()           { s.process.kill() }
func (s server) Freeze()         { s.process.signal(s.boss.t, syscall.SIGSTOP) }
func (s server) Thaw()           { s.process.signal(s.boss.t, syscall.SIGCONT) }

func (s server) Run() {
	s.process.start(s.boss.t)
	s.waitReady(s.boss.t)
}

func (s server) Tickets() (n int) {
	s.boss.do(func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Get(ctx, etcd.DefaultNamespace+testlease.Queue+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			n = int(answer.Count)
		}
		return err
	})
	return n
}

// made counts the tickets that were ever made, and not compacted away.
func (s server) made() (n int) {
	s.boss.do(func(ctx context.Context, c *clientv3.Client) error {
		now, err := c.Get(ctx, "x")
		if err != nil {
			return err
		}
		history := c.Watch(ctx, etcd.DefaultNamespace, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithProgressNotify())
		for more := range history {
			for _, event := range more.Events {
				if event.IsCreate() && strings.HasPrefix(string(event.Kv.Key), etcd.DefaultNamespace+testlease.Queue+"/") {
					n++
				}
			}
			if more.Header.Revision >= now.Header.Revision {
				break
			}
		}
		return nil
	})
	return n
}

func TestPromises(t *testing.T) {
	do := func(c change) func(server) { return func(s server) { s.boss.do(c) } }
	orderly, logout := openAs(etcd.Options{Username: "orderly", Password: "secret"}), func(ctx context.Context, c *clientv3.Client) error {
		return testlease.Second(c.AuthDisable(ctx))
	}
	elsewhere := func(used bool) testlease.Elsewhere[server] {
		return testlease.Elsewhere[server]{
			Found: "key orderly/!history is missing or another one",
			Prepare: func(t *testing.T, s server, link *testrelay.Relay) (move, back func()) {
				other := server{standalone: &standalone{Member: testetcd.Start(t)}}
				if used {
					testlease.EnterSoon(t, open(t, etcd.Options{}, other.URL))
				}
				return func() { link.Lead(other.Address()) }, func() { link.Lead(s.Address()) }
			},
		}
	}
	testlease.Promises[server]{
		TTL: 3 * time.Second, Start: startServer, Open: openAs(etcd.Options{}), Made: server.made, EvictionWaits: true,
		Kept: map[string]testlease.Fault[server]{
			"compaction, connections cut": {TTL: time.Minute, Do: func(_ *testing.T, s server, links []*testrelay.Relay) {
				for range 20 {
					_ = s.boss.try(compact) // fails where nothing is new
					links[0].Cut()
					links[1].Cut()
					time.Sleep(200 * time.Millisecond)
				}
			}},
		},
		Lost: map[string]testlease.Loss[server]{"the namespace": {Reason: serializer.ReasonEvicted, Do: do(func(ctx context.Context, c *clientv3.Client) error {
			return testlease.Second(c.Delete(ctx, etcd.DefaultNamespace, clientv3.WithPrefix()))
		})}},
		Rights: map[string]testlease.Right[server]{
			"to write": {Prepare: do(demandingLogin), Open: orderly, Other: openAs(etcd.Options{Username: "root", Password: "root"}),
				Lose: do(grant(false)), Back: do(grant(true)), Says: "right"},
			"without a login": {Open: openAs(etcd.Options{}), Other: orderly, Lose: do(demandingLogin), Back: do(logout), Says: "username"},
		},
		Elsewhere: map[string]testlease.Elsewhere[server]{"an empty cluster": elsewhere(false), "a cluster of others": elsewhere(true)},
	}.Run(t)
}
