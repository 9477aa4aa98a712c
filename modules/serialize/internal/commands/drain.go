package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

const (
	emptyPoll = 50 * time.Millisecond

	// emptyTime is for how long nobody must have been inside. Another process may
	// let one in until it knows of the pause; it checks ten times a second.
	emptyTime = 500 * time.Millisecond
)

// awaitEmpty returns when nobody is inside the paused queues.
func (c *pauseRun) awaitEmpty(ctx context.Context, source *adminSource, paused []serializer.QueueState, out io.Writer) (int, error) {
	empty := time.Now()
	for {
		queues, err := source.queues(ctx)
		switch {
		case ctx.Err() != nil:
			return caddy.ExitCodeFailedStartup, fmt.Errorf("waiting until nobody is inside %s: %w; the pause goes on", c.prefix, ctx.Err())
		case err != nil:
			return caddy.ExitCodeFailedStartup, err
		case !isPaused(queues, paused):
			return exitPauseEnded, fmt.Errorf("waiting until nobody is inside %s: the pause has ended", c.prefix)
		}
		if countInside(queues, paused) > 0 {
			empty = time.Now()
		}
		if time.Since(empty) >= emptyTime {
			fmt.Fprintln(out, "nobody is inside")
			return 0, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(emptyPoll):
		}
	}
}

// isPaused reports whether all of the paused queues still are.
func isPaused(queues, paused []serializer.QueueState) bool {
	for _, p := range paused {
		still := slices.ContainsFunc(queues, func(q serializer.QueueState) bool {
			return q.Path == p.Path && q.Prefix == p.Prefix && q.PausedUntil != nil
		})
		if !still {
			return false
		}
	}
	return true
}

// countInside counts those inside the paused queues.
func countInside(queues, paused []serializer.QueueState) (inside int) {
	for _, q := range queues {
		if slices.ContainsFunc(paused, func(p serializer.QueueState) bool { return q.Path == p.Path && queueapi.Matches(p.Prefix, q.Prefix) }) {
			inside += q.Inside
		}
	}
	return inside
}
