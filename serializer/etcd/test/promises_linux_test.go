package test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

func TestMain(m *testing.M) {
	testetcd.ServeIfAsked()
	testlease.Main(m, openAs(etcd.Options{}))
}

// openAs opens stores with a login. The address may be several, separated by commas.
func openAs(o etcd.Options) testlease.Open {
	return func(address string, ttl time.Duration) (serializer.Store, error) {
		o.Endpoints, o.TTL = strings.Split("http://"+strings.ReplaceAll(address, ",", ",http://"), ","), ttl
		return etcd.Open(o)
	}
}

// server is a cluster of one, as the tests of promises need it.
type server struct {
	*testetcd.Server
	boss *operator
}

func startServer(t testing.TB, flags ...string) server {
	s := testetcd.Start(t, testetcd.Debian, flags...)
	return server{s, &operator{t, []string{s.URL}}}
}

func (s server) Address() string { return strings.TrimPrefix(s.URL, "http://") }

func (s server) Run() {
	s.Server.Run()
	s.AwaitAnswer()
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

func TestPromises(t *testing.T) {
	do := func(c change) func(server) { return func(s server) { s.boss.do(c) } }
	orderly, logout := openAs(etcd.Options{Username: "orderly", Password: "secret"}), func(ctx context.Context, c *clientv3.Client) error {
		return testlease.Second(c.AuthDisable(ctx))
	}
	elsewhere := func(used bool) testlease.Elsewhere[server] {
		return testlease.Elsewhere[server]{
			Found: "key orderly/!history is missing or another one",
			Prepare: func(t *testing.T, s server, link *testrelay.Relay) (move, back func()) {
				other := server{Server: testetcd.Start(t, testetcd.Own)}
				if used {
					testlease.EnterSoon(t, open(t, etcd.Options{}, other.URL))
				}
				return func() { link.Lead(other.Address()) }, func() { link.Lead(s.Address()) }
			},
		}
	}
	testlease.Promises[server]{
		TTL: 3 * time.Second, Start: startServer, Open: openAs(etcd.Options{}),
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

// trio is three members, of which those that do not lead may fall silent: the next leader would begin
// all leases anew.
type trio struct {
	server
	endpoints []string
	silent    []*testetcd.Server
}

// Address is all of theirs.
func (s *trio) Address() string {
	return strings.ReplaceAll(strings.Join(s.endpoints, ","), "http://", "")
}

func (s *trio) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw waits until the members have a leader.
func (s *trio) Thaw() {
	s.signal(syscall.SIGCONT)
	s.AwaitAnswer()
}

func (s *trio) signal(signal syscall.Signal) {
	for _, m := range s.silent {
		m.Signal(signal)
	}
}

// Two of three members are silent.
func TestMajoritySilent(t *testing.T) {
	testlease.Promises[*trio]{TTL: 4 * time.Second, Open: openAs(etcd.Options{}), Start: func(t testing.TB, _ ...string) *trio {
		members, endpoints := startTrio(t, testetcd.Own)
		leader := awaitLeader(t, members)
		silent := slices.Delete(slices.Clone(members), leader, leader+1)
		return &trio{server: server{Server: members[0]}, endpoints: endpoints, silent: silent}
	}}.ServerSilent(t)
}

// Stores on one cluster behave like processes on several machines. Those of another
// namespace have nothing to do with them.
func TestStoreConforms(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	defer testlease.Enter(t, open(t, etcd.Options{Namespace: "other/"}, m.URL)).Turn.Leave()
	spaces := 0
	storetest.Run(t, storetest.Options{}, func(t testing.TB, n int) (stores []serializer.Store) {
		spaces++
		for range n {
			s, err := etcd.Open(etcd.Options{Endpoints: []string{m.URL}, Namespace: fmt.Sprintf("space%d/", spaces)})
			testlease.Must(t, err)
			stores = append(stores, s)
		}
		return stores
	})
}

// In a long queue of several machines, nobody is forgotten and the order holds.
func TestCrowd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	testlease.Crowd(t, func() *serializer.Engine { return open(t, etcd.Options{TTL: time.Minute}, s.URL) }, s.Tickets, 400)
}

// Bug: a caller that left and came back at once sent two requests, often the one for its
// new ticket first. etcd commits in rounds, so the next process waited for two of them.
func TestLeavingAndComingAgainIsOneWrite(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c, e := m.Client(t), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	revision := func() int64 {
		answer, err := c.Get(t.Context(), "x")
		testlease.Must(t, err)
		return answer.Header.Revision
	}
	const turns = 200
	turn := testlease.Enter(t, e).Turn
	before := revision()
	for range turns {
		turn.Leave()
		turn = testlease.Enter(t, e).Turn
	}
	// A caller that the system stops between leaving and coming back sends two.
	if writes := revision() - before; writes > turns*3/2 {
		t.Errorf("%d writes for %d turns", writes, turns)
	}
	turn.Leave()
	waitUntilEmpty(t, c)
}

func BenchmarkHandOver(b *testing.B) {
	m := testetcd.Start(b, testetcd.Own)
	testlease.HandOver(b, func() *serializer.Engine { return open(b, etcd.Options{}, m.URL) })
}

// tested is a cluster, and three processes with a link each to each member.
type tested struct {
	t       *testing.T
	ttl     time.Duration
	members []*testetcd.Server
	urls    []string // of the members
	boss    *operator
	other   *testetcd.Server
	links   [][]*testrelay.Relay // of each process
	engines []*serializer.Engine

	endedLeases bool // etcd has, when a frozen member woke up in this round
}

func (c *tested) faults() map[string]func() {
	someone := func() *testetcd.Server { return c.members[rand.IntN(3)] }
	return map[string]func(){
		"a member killed": func() {
			m := someone()
			m.Kill()
			time.Sleep(3 * time.Second)
			m.Run()
		},
		"a member frozen": func() {
			m := someone()
			m.Freeze()
			time.Sleep(c.ttl + time.Second)
			before := c.leases()
			m.Thaw()
			c.endedLeases = c.endedLeases || wait.Poll(c.ttl/2, func() bool { return !maps.Equal(c.leases(), before) })
		},
		"a process led to an empty cluster": func() {
			links := c.links[rand.IntN(3)]
			for _, link := range links {
				link.Lead(strings.TrimPrefix(c.other.URL, "http://"))
			}
			time.Sleep(2*c.ttl + time.Second)
			for i, link := range links {
				link.Lead(strings.TrimPrefix(c.urls[i], "http://"))
			}
		},
		"a process cut off from one member": func() {
			link := c.links[rand.IntN(3)][0]
			link.Part(true)
			time.Sleep(2 * time.Second)
			link.Part(false)
		},
		"history compacted": func() { c.boss.do(compact) },
		"tokens ended": func() {
			c.boss.do(password("other"))
			time.Sleep(500 * time.Millisecond)
			c.boss.do(password("secret"))
		},
	}
}

// leases are those in etcd.
func (c *tested) leases() map[clientv3.LeaseID]bool {
	leases := make(map[clientv3.LeaseID]bool)
	list := func(ctx context.Context, client *clientv3.Client) error {
		all, err := client.Leases(ctx)
		if err == nil {
			for _, lease := range all.Leases {
				leases[lease.ID] = true
			}
		}
		return err
	}
	// On a busy machine, the leader may change meanwhile.
	wait.Eventually(c.boss.t, "the servers list their leases", func() error { return c.boss.try(list) })
	return leases
}

// compact drops the history before now.
func compact(ctx context.Context, c *clientv3.Client) error {
	answer, err := c.Get(ctx, "x")
	if err != nil {
		return err
	}
	return testlease.Second(c.Compact(ctx, answer.Header.Revision))
}

// Two may be inside when an old leader of etcd wakes up and ends leases.
func TestHistories(t *testing.T) {
	c := &tested{t: t, ttl: 5 * time.Second, other: testetcd.Start(t, testetcd.Own)}
	c.members, c.urls = startTrio(t, testetcd.Debian, "--auth-token-ttl", "2")
	c.boss = demandLogin(t, c.urls...)
	for range 3 {
		var links []*testrelay.Relay
		var endpoints []string
		for _, to := range c.urls {
			link := startLink(t, to)
			links, endpoints = append(links, link.Relay), append(endpoints, link.url())
		}
		c.links = append(c.links, links)
		c.engines = append(c.engines, open(t, etcd.Options{Username: "orderly", Password: "secret", TTL: c.ttl}, endpoints...))
	}
	testlease.Histories{TTL: c.ttl, Engines: c.engines, Links: c.links, Faults: c.faults, Excused: func() bool {
		ended := c.endedLeases
		c.endedLeases = false
		return ended
	}}.Run(t)
}
