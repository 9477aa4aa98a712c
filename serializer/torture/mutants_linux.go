//go:build mutants

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

func init() {
	for name := range serializer.Mutants {
		engines[name] = func(dir string, clock func() time.Time) (serializer.Engine, error) {
			return serializer.OpenMutant(name, dir, serializer.FileOptions{Clock: clock})
		}
	}
	for name, mutate := range map[string]func(*serializer.File) serializer.Engine{
		"leaky": func(f *serializer.File) serializer.Engine { return &leaky{f} },
		"hasty": func(f *serializer.File) serializer.Engine { return &hasty{f} },
	} {
		engines[name] = func(dir string, clock func() time.Time) (serializer.Engine, error) {
			f, err := serializer.OpenFile(dir, serializer.FileOptions{Clock: clock})
			if err != nil {
				return nil, err
			}
			return mutate(f), nil
		}
	}
}

// leaky admits some waiters to a paused queue after a while.
type leaky struct{ *serializer.File }

var errImpatient = errors.New("it has waited long enough")

func (l *leaky) Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	if rand.IntN(5) > 0 {
		return l.File.Enter(ctx, a)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Second/2, errImpatient)
	defer cancel()
	turn, err := l.File.Enter(ctx, a)
	if refused, ok := errors.AsType[*serializer.Refused](err); ok && errors.Is(err, errImpatient) {
		return freeTurn(refused.Token), nil
	}
	return turn, err
}

// freeTurn is a turn that no engine has granted.
type freeTurn uint64

func (t freeTurn) Token() uint64 { return uint64(t) }
func (t freeTurn) Position() int { return 0 }
func (t freeTurn) Leave()        {}

// hasty supersedes some waiters as soon as one other waits.
type hasty struct{ *serializer.File }

func (h *hasty) Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	if a.DropOldest && rand.IntN(2) == 0 {
		a.MaxWaiting = 1
	}
	return h.File.Enter(ctx, a)
}
