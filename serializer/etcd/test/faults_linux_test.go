package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// One of three members fails while clients of some processes take turns. Somebody enters again within the
// time to live and two seconds. A frozen member says nothing, but its kernel still acknowledges data. Bug:
// everything stood still for 13 seconds then, leases were lost, and a waiter was refused as evicted, which
// it was not.
func TestFaults(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	members, endpoints := startTrio(t, testetcd.Own)
	var engines []*serializer.Engine
	for _, m := range members {
		for metric(m, "etcd_debugging_mvcc_watcher_total ", "") == 0 { // a process begins with a random member
			engines = append(engines, open(t, etcd.Options{TTL: ttl}, endpoints...))
		}
	}
	for _, c := range []struct {
		name       string
		leads      bool
		fail, mend func(*testetcd.Server)
	}{
		{"follower frozen", false, (*testetcd.Server).Freeze, (*testetcd.Server).Thaw},
		{"leader killed", true, (*testetcd.Server).Kill, (*testetcd.Server).Run},
		{"leader frozen", true, (*testetcd.Server).Freeze, (*testetcd.Server).Thaw},
	} {
		t.Run(c.name, func(t *testing.T) {
			member := members[awaitLeader(t, members)]
			if !c.leads {
				member = members[(slices.Index(members, member)+1)%len(members)]
			}
			clients := testlease.Come(testlease.Queue, 2, engines...)
			come := func(when string) {
				before := clients.Turns()
				wait.Until(t, "clients come "+when, func() bool { return clients.Turns() > before+20 })
			}
			come("at first")
			c.fail(member)
			time.Sleep(ttl + 3*time.Second)
			come("without the member")
			c.mend(member)
			come("with the member again")
			clients.End()
			refused, longest := clients.Refused, slices.Max(clients.Gaps)
			t.Logf("%d turns, %d refused; the longest time without one: %.2f s", clients.Turns(), len(refused), longest.Seconds())
			if longest > ttl+2*time.Second {
				t.Errorf("nobody entered for %s", longest)
			}
			if !c.leads && len(refused) > 0 {
				t.Errorf("%d were refused: %v", len(refused), refused[0])
			}
		})
	}
}

// awaitLeader waits until exactly one member leads, and returns its index.
func awaitLeader(t testing.TB, members []*testetcd.Server) (leader int) {
	t.Helper()
	wait.Until(t, "a member leads", func() bool {
		leaders := 0
		for i, m := range members {
			if metric(m, "etcd_server_is_leader ", "") == 1 {
				leader = i
				leaders++
			}
		}
		return leaders == 1
	})
	return leader
}

var quota = []string{"--quota-backend-bytes", "2097152"}

// A full etcd refuses puts, but still deletes. Bug: the deletion of a ticket came with a
// put, so it was refused, and the next caller waited for nobody until its timeout.
func TestEtcdFull(t *testing.T) {
	t.Parallel()
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testetcd.Start(t, program, quota...)
			here, there := open(t, etcd.Options{}, m.URL), open(t, etcd.Options{}, m.URL)
			holder := testlease.Enter(t, here).Turn
			second, next := testlease.Join(t, here), testlease.Join(t, there)
			fill(t, m)
			holder.Leave()
			second.Wait(t).Leave()
			left := time.Now()
			next.Wait(t).Leave()
			if took := time.Since(left); took > 5*time.Second {
				t.Errorf("the next one entered after %s", took)
			}
			_, err := here.Enter(t.Context(), arrival("a_"))
			wantRefusal(t, err, serializer.ReasonStorage, rpctypes.ErrNoSpace)
			makeRoom(t, m)
			testlease.EnterSoon(t, there)
			waitUntilEmpty(t, m.Client(t))
		})
	}
}

// The request for a ticket was carried out and its answer lost; the next
// attempt finds etcd full. The ticket must not stay.
func TestFullAfterLostAnswer(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Debian, quota...)
	c, link := m.Client(t), startLink(t, m.URL)
	here, there := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	testlease.Enter(t, here).Turn.Leave()
	waitUntilEmpty(t, c)
	before := testlease.Enter(t, there, arrival("b_")).Turn
	if r := loseAnswer(t, here, link, c, 2, func() { fill(t, m) }); r.End(t) == nil {
		r.Turn.Leave()
	} else {
		wantRefusal(t, r.Err, serializer.ReasonStorage, serializer.ErrStorage)
	}
	before.Leave()
	waitUntilEmpty(t, c)
}

// fill writes until etcd refuses for lack of space.
func fill(t *testing.T, m *testetcd.Server) {
	t.Helper()
	c, value := m.Client(t), strings.Repeat("x", 900<<10)
	i := 0
	wait.Until(t, "etcd is full", func() bool { // it counts what it has synced
		i++
		_, err := c.Put(context.Background(), fmt.Sprintf("filler%d", i), value)
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
}

// makeRoom has etcd accept writes again.
func makeRoom(t *testing.T, m *testetcd.Server) {
	t.Helper()
	c, ctx := m.Client(t), t.Context()
	answer, err := c.Delete(ctx, "filler", clientv3.WithPrefix())
	testlease.Must(t, err)
	testlease.Must(t, testlease.Second(c.Compact(ctx, answer.Header.Revision)))
	testlease.Must(t, testlease.Second(c.Defragment(ctx, m.URL)))
	testlease.Must(t, testlease.Second(c.AlarmDisarm(ctx, &clientv3.AlarmMember{})))
}

// loseAnswer starts an arrival over a link. etcd makes its ticket, so that there are that
// many, and the answer is lost.
func loseAnswer(t *testing.T, e *serializer.Engine, link link, c *clientv3.Client, tickets int, meanwhile func()) *testlease.Caller {
	t.Helper()
	link.Hold(true)
	done := testlease.Arrive(e, arrival("a_"))
	wait.Until(t, "the ticket exists", func() bool { return len(ticketsOf(t, c, "")) == tickets })
	meanwhile()
	link.Cut()
	link.Hold(false)
	return done
}

// The answer to a deletion and a ticket is lost after etcd has carried out both. The
// next one enters, the ticket is not taken twice, and no key stays.
func TestLostAnswerToDeletionAndTicket(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c, link := m.Client(t), startLink(t, m.URL)
	here, there := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	turn := testlease.Enter(t, here).Turn
	waiting := testlease.Join(t, there)
	link.Hold(true)
	turn.Leave()
	last := loseAnswer(t, here, link, c, 2, func() { waiting.Wait(t) })
	waiting.Turn.Leave()
	testlease.WantGreater(t, last.Wait(t).Token(), waiting.Turn.Token())
	last.Turn.Leave()
	waitUntilEmpty(t, c)
}

// Bug: a member was silent, and another one made the ticket. When the silent one woke
// up, it made the ticket again, after its use and deletion. Nobody looked for it,
// because the request had an answer, and other machines waited for it until their
// timeout.
func TestStrayOfSilentMember(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c := m.Client(t)
	links := []link{startLink(t, m.URL), startLink(t, m.URL)}
	here := open(t, etcd.Options{TTL: time.Minute}, links[0].url(), links[1].url())
	there := open(t, etcd.Options{}, m.URL)
	for _, link := range links { // one of them is in use
		testlease.Enter(t, here).Turn.Leave()
		waitUntilEmpty(t, c)
		link.Part(true)
		turn := testlease.Enter(t, here).Turn
		stray := ticketsOf(t, c, "a_/")[0]
		turn.Leave()
		waitUntilEmpty(t, c)
		link.Part(false)
		stray.putAgain(t, c, "")
		testlease.Enter(t, there).Turn.Leave()
		waitUntilEmpty(t, c)
	}
}
