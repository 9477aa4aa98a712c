package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

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

// In a long queue of several machines, nobody is forgotten and the order holds. That includes an etcd
// that takes few operations in a transaction: with two, it refuses a deletion that goes along with a
// ticket, and neither of them is lost.
func TestCrowd(t *testing.T) {
	t.Parallel()
	for _, operations := range []string{"128", "8", "2"} {
		t.Run(operations+" operations in a transaction", func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "--max-txn-ops", operations)
			testlease.Crowd(t, func() *serializer.Engine { return open(t, etcd.Options{TTL: time.Minute}, s.URL) }, s.Tickets, 400)
		})
	}
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
