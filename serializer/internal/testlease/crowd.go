package testlease

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Crowd has many wait, in two processes, and one more in a process that comes later. All get their
// turns, in order. tickets counts those of the server.
func Crowd(t *testing.T, open func() *Engine, tickets func() int, n int) {
	t.Helper()
	engines := []*Engine{open(), open()}
	for _, e := range engines {
		EnterSoon(t, e)
	}
	holder := Enter(t, engines[0])
	var mu sync.Mutex
	var tokens []uint64
	start := time.Now()
	for i := range n {
		engines[i%2].Join(Arrival(Queue, 0), func(turn serializer.Turn, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			tokens = append(tokens, turn.Token())
			mu.Unlock()
			turn.Leave()
		})
	}
	wait.Until(t, "all wait", func() bool { return tickets() == n+1 })
	joined := time.Since(start)
	late := JoinAs(t, open(), Arrival(Queue, 0))
	learned := time.Since(start) - joined
	holder.Turn.Leave()
	wait.Until(t, "all had their turns", late.Over)
	Must(t, late.Err)
	t.Logf("%d have joined in %s; a process that came later had a ticket after %s; all had their turns in another %s",
		n, joined, learned, time.Since(start)-joined-learned)
	mu.Lock()
	defer mu.Unlock()
	if len(tokens) != n {
		t.Fatalf("%d turns", len(tokens))
	}
	if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != n || late.Turn.Token() <= tokens[n-1] || late.Turn.Position() != n+1 {
		t.Errorf("%d turns, in order: %t; the last one has %d after %d, and position %d",
			len(tokens), slices.IsSorted(tokens), late.Turn.Token(), tokens[n-1], late.Turn.Position())
	}
}
