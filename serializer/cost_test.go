//go:build !race

package serializer_test

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The bounds are the current values, so that a new allocation is noticed. The race detector
// allocates, too.
func TestAllocationsOfATurn(t *testing.T) {
	reader := ruled(serializer.Rule{Shared: true})
	reader.Timeout = 0
	for name, c := range map[string]struct {
		most float64
		turn func(*serializer.Engine)
	}{
		"Enter": {1, func(e *serializer.Engine) { enter(t, e, reader).Leave() }},
		"Join": {4, func(e *serializer.Engine) {
			left := make(chan struct{})
			e.Join(reader, func(turn serializer.Turn, _ error) { turn.Leave(); close(left) })
			<-left
		}},
	} {
		e := newMemory()
		stays := enter(t, e, reader) // so that the queue does
		n := testing.AllocsPerRun(2000, func() { c.turn(e) })
		stays.Leave()
		if n > c.most {
			t.Errorf("%s: a turn allocates %.1f times, more than %.0f", name, n, c.most)
		}
	}
}
