// Package library measures package serializer in processes of its own: what a turn
// costs, in time, memory, system calls and instructions.
package library

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The engines that can be measured.
const (
	File        = "file"
	Memory      = "memory"
	Channel     = "channel"     // a list of channels: the least that keeps an order
	Predecessor = "predecessor" // the algorithm of mod_serializer
)

// Engine says which engine to measure.
type Engine struct {
	Engine string // one of the constants
	Dir    string // for lock files
}

func (e Engine) open() (serializer.Engine, error) {
	switch e.Engine {
	case File:
		return serializer.OpenFile(e.Dir, serializer.FileOptions{})
	case Memory:
		return serializer.NewMemory(serializer.MemoryOptions{}), nil
	case Channel:
		return new(channels), nil
	case Predecessor:
		return &predecessor{dir: e.Dir}, nil
	}
	return nil, fmt.Errorf("there is no engine %q", e.Engine)
}

// with calls f with the engine, and closes it.
func (e Engine) with(f func(serializer.Engine) error) error {
	engine, err := e.open()
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	return f(engine)
}

var arrival = serializer.Arrival{
	Queue:   "bench_",
	Client:  netip.MustParseAddrPort("192.0.2.1:36794"),
	Rule:    serializer.Rule{Limit: 1},
	Timeout: time.Minute, // as by default in Caddy. Nobody here waits that long.
}

// Work is a number of turns, by callers that know nothing of each other.
type Work struct {
	Engine
	Callers int
	Turns   int // of each
}

func init() {
	proc.Role("work", func(ctx context.Context, w Work) (struct{}, error) {
		return struct{}{}, w.with(func(e serializer.Engine) error { return w.do(ctx, e) })
	})
}

func (w Work) do(ctx context.Context, engine serializer.Engine) error {
	var callers errgroup.Group
	for range w.Callers {
		callers.Go(func() error {
			for range w.Turns {
				turn, err := engine.Enter(ctx, arrival)
				if err != nil {
					return err
				}
				turn.Leave()
			}
			return nil
		})
	}
	return callers.Wait()
}
