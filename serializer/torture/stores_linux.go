package main

import (
	"context"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// engine is what the processes use of a [serializer.Engine].
type engine interface {
	Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error)
	Queues(ctx context.Context) ([]serializer.QueueState, error)
	Evict(ctx context.Context, queue string, token uint64) error
	Pause(ctx context.Context, name string, until time.Time) error
	Resume(ctx context.Context, name string) error
	Close() error
}

// openers open an engine on the store of lock files. Tests add wrong ones, whose defects
// must be found.
var openers = map[string]func(p *process) (engine, error){"lockfile": openLockfile}

func openLockfile(p *process) (engine, error) {
	s, err := lockfile.Open(p.Dir, lockfile.Options{Clock: p.clock})
	if err != nil {
		return nil, err
	}
	return serializer.New(s, serializer.Options{}), nil
}
