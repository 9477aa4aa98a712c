package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/command"
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
func (c *pauseRun) awaitEmpty(ctx context.Context, source queueSource, paused []serializer.QueueState, out io.Writer) (int, error) {
	empty := time.Now()
	var doubtful []serializer.QueueState
	for first := true; ; first = false {
		queues, err := source.queues(ctx)
		switch {
		case ctx.Err() != nil:
			return caddy.ExitCodeFailedStartup, fmt.Errorf("waiting until nobody is inside %s: %w; the pause goes on", c.prefix, ctx.Err())
		case err != nil:
			return caddy.ExitCodeFailedStartup, err
		case !isPaused(queues, paused):
			return exitPauseEnded, fmt.Errorf("waiting until nobody is inside %s: the pause has ended", c.prefix)
		}
		if first {
			doubtful = findDoubtful(queues, paused)
			writeDoubtful(out, doubtful)
		}
		if countInside(queues, paused) > 0 || isAnyLeft(queues, doubtful) {
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

// fitsPrefix reports whether a queue may be one of a prefix with placeholders.
func fitsPrefix(q serializer.QueueState, prefix string) bool {
	return queueapi.Placeholder.MatchString(prefix) && serializer.FitsGroup(q.Prefix, prefix)
}

// countInside counts those inside the paused queues, and in those of their prefixes. A
// queue that is not paused is not one of the prefix, though its name fits.
func countInside(queues, paused []serializer.QueueState) (inside int) {
	for _, q := range queues {
		of := func(p serializer.QueueState) bool {
			return q.Path == p.Path && (q.Prefix == p.Prefix || fitsPrefix(q, p.Prefix))
		}
		if q.PausedUntil != nil && slices.ContainsFunc(paused, of) {
			inside += q.Inside
		}
	}
	return inside
}

// findDoubtful lists the queues that may belong to a paused prefix although it does not
// pause them. Their tickets came through another prefix, such as the one before a reload.
// Those inside must leave. Later requests come through a prefix that nobody has paused.
func findDoubtful(queues, paused []serializer.QueueState) (doubtful []serializer.QueueState) {
	for _, q := range queues {
		fits := func(p serializer.QueueState) bool { return q.Path == p.Path && fitsPrefix(q, p.Prefix) }
		if q.PausedUntil == nil && len(q.Groups) > 0 && slices.ContainsFunc(paused, fits) {
			doubtful = append(doubtful, q)
		}
	}
	return doubtful
}

func writeDoubtful(out io.Writer, doubtful []serializer.QueueState) {
	for _, q := range doubtful {
		fmt.Fprintf(out, "%s in %s: not paused, for its requests came by %s; waiting for the %d that are there\n", command.Printable(q.Prefix),
			command.Printable(q.Path), command.Printable(strings.Join(q.Groups, " and ")), len(q.Tickets))
	}
}

// isAnyLeft reports whether a ticket of the doubtful queues is still there, where it may
// be inside.
func isAnyLeft(queues, doubtful []serializer.QueueState) bool {
	for _, q := range queues {
		i := slices.IndexFunc(doubtful, func(d serializer.QueueState) bool { return d.Path == q.Path && d.Prefix == q.Prefix })
		if i < 0 || q.PausedUntil != nil {
			continue
		}
		known := queueapi.Queue{QueueState: doubtful[i]}
		if slices.ContainsFunc(q.Tickets, func(t serializer.TicketState) bool { _, ok := known.Ticket(t.Token); return ok }) {
			return true
		}
	}
	return false
}
