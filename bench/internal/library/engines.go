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
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
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

// engine is what is measured: a [serializer.Engine], or a rival.
type engine interface {
	Enter(context.Context, serializer.Arrival) (serializer.Turn, error)
	Queues(context.Context) ([]serializer.QueueState, error)
	Close() error
}

func (e Engine) open() (engine, error) {
	switch e.Engine {
	case File:
		store, err := lockfile.Open(e.Dir, lockfile.Options{})
		if err != nil {
			return nil, err
		}
		return serializer.New(store, serializer.Options{}), nil
	case Memory:
		return serializer.New(memory.New(memory.Options{}), serializer.Options{}), nil
	case Channel:
		return new(channels), nil
	case Predecessor:
		return &predecessor{dir: e.Dir}, nil
	}
	return nil, fmt.Errorf("there is no engine %q", e.Engine)
}

// with calls f with the engine, and closes it.
func (e Engine) with(f func(engine) error) error {
	opened, err := e.open()
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	return f(opened)
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
		return struct{}{}, w.with(func(e engine) error { return w.do(ctx, e) })
	})
}

func (w Work) do(ctx context.Context, e engine) error {
	var callers errgroup.Group
	for range w.Callers {
		callers.Go(func() error {
			for range w.Turns {
				turn, err := e.Enter(ctx, arrival)
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
