package memory_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Options{Private: true}, func(testing.TB, int) []serializer.Store {
		return []serializer.Store{memory.New(memory.Options{})}
	})
}

// Numbers are the time in microseconds, but they grow even if the clock stands still, goes
// back, or is before 1970.
func TestNumbersGrow(t *testing.T) {
	var now atomic.Int64
	e := serializer.New(memory.New(memory.Options{Clock: func() time.Time { return time.UnixMicro(now.Load()) }}), serializer.Options{})
	defer e.Close()
	for _, c := range []struct {
		clock int64
		token uint64
	}{{-5, 1}, {0, 2}, {1_000_000, 1_000_000}, {1_000_000, 1_000_001}, {5, 1_000_002}, {2_000_000, 2_000_000}} {
		now.Store(c.clock)
		turn, err := e.Enter(context.Background(), serializer.Arrival{Queue: "a_"})
		if err != nil {
			t.Fatal(err)
		}
		if turn.Token() != c.token {
			t.Errorf("at %d µs: token %d; expected %d", c.clock, turn.Token(), c.token)
		}
		turn.Leave()
	}
}
