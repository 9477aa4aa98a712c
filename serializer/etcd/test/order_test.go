package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

// Stores on one cluster behave like processes on several machines. Those of another
// namespace have nothing to do with them.
func TestStoreConforms(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
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

// In a long queue on two machines, nobody is forgotten and the order holds. That includes
// queues too long to be read anew each time, and an etcd that takes few operations in a
// transaction: with two, it refuses a deletion that goes along with a ticket, and neither
// of them is lost.
func TestLongQueue(t *testing.T) {
	t.Parallel()
	for _, operations := range []uint{128, 8, 2} {
		t.Run(fmt.Sprintf("%d operations in a transaction", operations), func(t *testing.T) {
			t.Parallel()
			m := testetcd.New(t)
			m.Config.MaxTxnOps = operations
			m.Start(t)
			c, here, there := m.Client(t), open(t, etcd.Options{}, m.URL), open(t, etcd.Options{}, m.URL)
			holder := testlease.Enter(t, here).Turn
			var all crowd
			all.comes(here, 200, 2, 0, 0)
			all.comes(there, 200, 2, 0, 0)
			wait.Until(t, "all have tickets", func() bool { return len(ticketsOf(t, c, "a_/")) == 401 })
			holder.Leave()
			all.wantOrder(t, 800)
			waitUntilEmpty(t, c)
		})
	}
}

// Bug: a caller that left and came back at once sent two requests, often the one for its
// new ticket first. etcd commits in rounds, so the next process waited for two of them.
func TestLeavingAndComingAgainIsOneWrite(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
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
