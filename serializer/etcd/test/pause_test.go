package test

import (
	"errors"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// A pause outlives the engine that made it, and holds for one that starts later.
func TestPauseBeforeStart(t *testing.T) {
	m := testetcd.Start(t)
	first := open(t, etcd.Options{}, m.URL)
	if err := first.Pause(t.Context(), "a", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	e := open(t, etcd.Options{}, m.URL)
	_, err := e.Enter(t.Context(), serializer.Arrival{Queue: "a", Timeout: time.Second})
	if !errors.Is(err, serializer.ErrTimeout) {
		t.Errorf("error %v; expected a timeout, for the queue is paused", err)
	}
	if err := e.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	turn, err := e.Enter(t.Context(), serializer.Arrival{Queue: "a", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	turn.Leave()
}
