package test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// Bug: the engine called Joined while it held its lock. A Joined that asked the engine
// anything stopped all queues of the process for good.
func TestJoinedWithoutLock(t *testing.T) {
	m := testetcd.Start(t)
	e, err := etcd.Open(etcd.Options{Endpoints: []string{m.URL}})
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the engine has a lease", func() bool { return e.Stats().Lease })
	holder := enter(t, e, arrival("a_"))
	asked := make(chan error, 1)
	a := arrival("a_")
	a.Joined = func() {
		_, waiting := e.Count("a_")
		queues, err := e.Queues(context.Background())
		if waiting != 1 || len(queues) != 1 || queues[0].Waiting != 1 {
			err = errors.Join(err, errors.New("the one that has joined does not wait"))
		}
		asked <- err
	}
	done := make(chan result, 1)
	go func() {
		turn, err := e.Enter(context.Background(), a)
		done <- result{turn, err}
	}()
	select {
	case err := <-asked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second): // the engine cannot even be closed
		t.Fatal("Joined waits for a lock of the engine")
	}
	holder.Leave()
	(<-done).leave(t)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// Joined has been called exactly once when Enter returns, be it with a turn or, after the
// ticket was taken, with a refusal.
func TestJoinedWithTurn(t *testing.T) {
	m := testetcd.Start(t)
	e := open(t, etcd.Options{}, m.URL)
	var called atomic.Int64
	enterOnce := func(timeout time.Duration) (serializer.Turn, error) {
		a := arrival("a_")
		a.Timeout = timeout
		a.Joined = func() { called.Add(1) }
		called.Store(0)
		turn, err := e.Enter(context.Background(), a)
		if n := called.Load(); n != 1 {
			t.Errorf("Joined was called %d times before Enter returned %v, %v", n, turn, err)
		}
		return turn, err
	}
	for range 50 {
		turn, err := enterOnce(0)
		if err != nil {
			t.Fatal(err)
		}
		turn.Leave()
	}
	holder := enter(t, e, arrival("a_"))
	_, err := enterOnce(2 * time.Second)
	wantRefusal(t, err, serializer.ReasonTimeout, serializer.ErrTimeout)
	holder.Leave()
}
