// Package test holds the tests of the etcd engine against etcd itself. It is a
// module of its own, so that nobody who uses the engine needs an etcd server.
//
//	go test ./...                                                # everything that this user may do
//	go test -run TestFaults -v -timeout 30m . -long              # longer, with all faults
//	go test -run TestHistories -v -timeout 60m . -for 30m        # histories of lock, token and register
//	go test -run - -bench HandOver -timeout 20m .                # figures beside a put and beside concurrency.Mutex
//
// The tests of faults put members and processes into network namespaces, which
// needs root and iproute2; without these, the tests are skipped. Some need the
// system's etcd, on Debian from etcd-server.
package test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// long is for faults that take their time.
var long = flag.Bool("long", false, "with more faults")

func TestMain(m *testing.M) {
	wait.InParallel()
	testetcd.Main(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// second drops an answer of which only the error is of interest.
func second[T any](_ T, err error) error { return err }

// engine is what a process has: an engine on its own store.
type engine struct {
	*serializer.Engine
	lost atomic.Int64 // leases
}

// Write reads the engine's log.
func (e *engine) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("the claim on the queues was lost")) {
		e.lost.Add(1)
	}
	return len(line), nil
}

// open makes an engine, as a process does, and waits until it has a lease. On a busy
// machine etcd may be so slow that the first attempt fails; until the next one,
// arrivals are refused.
func open(t testing.TB, o etcd.Options, endpoints ...string) *engine {
	t.Helper()
	e := openAlone(t, o, endpoints...)
	wait.Eventually(t, "the engine has a lease", func() error { return second(e.Queues(t.Context())) })
	return e
}

// openAlone makes an engine, and does not wait for its cluster.
func openAlone(t testing.TB, o etcd.Options, endpoints ...string) *engine {
	t.Helper()
	o.Endpoints = endpoints
	store, err := etcd.Open(o)
	must(t, err)
	e := new(engine)
	e.Engine = serializer.New(store, serializer.Options{Log: slog.New(slog.NewTextHandler(e, nil))})
	t.Cleanup(func() { e.Close() })
	return e
}

func arrival(queue string) serializer.Arrival {
	return serializer.Arrival{Queue: queue, Client: "192.168.0.1:36794", Timeout: 20 * time.Second}
}

// arrivalFor is an arrival that waits no longer than that.
func arrivalFor(timeout time.Duration, queue string) serializer.Arrival {
	a := arrival(queue)
	a.Timeout = timeout
	return a
}

func enter(t testing.TB, e *engine, queue string) serializer.Turn {
	t.Helper()
	turn, err := e.Enter(context.Background(), arrival(queue))
	must(t, err)
	return turn
}

// held enters, and returns the turn with the causes of its revocation.
func held(t testing.TB, e *engine, queue string) (serializer.Turn, chan error) {
	t.Helper()
	a, revoked := arrival(queue), make(chan error, 1)
	a.Revoke = func(cause error) { revoked <- cause }
	turn, err := e.Enter(context.Background(), a)
	must(t, err)
	return turn, revoked
}

func wantRevoked(t testing.TB, revoked <-chan error, cause error) {
	t.Helper()
	select {
	case err := <-revoked:
		if !errors.Is(err, cause) {
			t.Errorf("revoked with %v; expected %v", err, cause)
		}
	case <-time.After(wait.Patience):
		t.Error("the holder is not revoked")
	}
}

// enterSoon enters as soon as that is possible, and leaves.
func enterSoon(t testing.TB, e *engine, queue string) {
	t.Helper()
	wait.Eventually(t, "arrivals enter", func() error {
		turn, err := e.Enter(context.Background(), arrivalFor(5*time.Second, queue))
		if err == nil {
			turn.Leave()
		}
		return err
	})
}

type result struct {
	turn serializer.Turn
	err  error
}

func (r result) leave(t testing.TB) {
	t.Helper()
	must(t, r.err)
	r.turn.Leave()
}

// start starts an arrival.
func start(e *engine, queue string) <-chan result {
	done := make(chan result, 1)
	go func() {
		turn, err := e.Enter(context.Background(), arrival(queue))
		done <- result{turn, err}
	}()
	return done
}

// join starts an arrival and returns once it has a ticket.
func join(t testing.TB, e *engine, queue string) <-chan result {
	t.Helper()
	count := func() int {
		inside, waiting := e.Count(queue)
		return inside + waiting
	}
	before, done := count(), start(e, queue)
	wait.Until(t, "the arrival has a ticket", func() bool { return count() > before || len(done) > 0 })
	return done
}

func queueOf(t testing.TB, e *engine, queue string) serializer.QueueState {
	t.Helper()
	queues, err := e.Queues(context.Background())
	must(t, err)
	for _, q := range queues {
		if q.Prefix == queue {
			return q
		}
	}
	return serializer.QueueState{}
}

// evict has an engine evict the i-th ticket of a list.
func evict(t testing.TB, e *engine, q serializer.QueueState, i int) {
	t.Helper()
	token, err := strconv.ParseUint(q.Tickets[i].Token, 10, 64)
	must(t, err)
	if err := e.Evict(context.Background(), q.Prefix, token); err != nil {
		t.Error(err)
	}
}

func wantRefusal(t testing.TB, err error, reason serializer.Reason, cause error) {
	t.Helper()
	var refused *serializer.Refused
	if !errors.As(err, &refused) || refused.Reason != reason || !errors.Is(err, cause) {
		t.Errorf("got %v, want a refusal for %s", err, reason)
	}
}

// ticketsOf returns the tickets in etcd of queues whose names begin so, in order.
func ticketsOf(t testing.TB, c *clientv3.Client, queues string) (tickets []ticket) {
	t.Helper()
	answer, err := c.Get(context.Background(), etcd.DefaultNamespace+queues, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	must(t, err)
	for _, kv := range answer.Kvs {
		if key := string(kv.Key); !strings.HasPrefix(key, etcd.DefaultNamespace+"!") {
			tickets = append(tickets, ticket{key, string(kv.Value), clientv3.LeaseID(kv.Lease)})
		}
	}
	return tickets
}

// ticket is one as it stands in etcd.
type ticket struct {
	key, value string
	lease      clientv3.LeaseID
}

// putAgain writes a ticket as its owner did, to a key of that name and suffix.
func (k ticket) putAgain(t testing.TB, c *clientv3.Client, suffix string) {
	t.Helper()
	must(t, second(c.Put(context.Background(), k.key+suffix, k.value, clientv3.WithLease(k.lease))))
}

func waitUntilEmpty(t testing.TB, c *clientv3.Client) {
	t.Helper()
	wait.Eventually(t, "no ticket is left in etcd", func() error {
		if tickets := ticketsOf(t, c, ""); len(tickets) > 0 {
			return fmt.Errorf("there are %+v", tickets)
		}
		return nil
	})
}
