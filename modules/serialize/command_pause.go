package serialize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/serializer"
)

func pauseCommand() *cobra.Command {
	c := &pauseRun{action: actionPause}
	cmd := &cobra.Command{
		Use:   "pause --prefix P [--path DIR] [--for 10m] [--wait]",
		Short: "Pauses a queue",
		Long: `
Pauses a queue: nobody enters. Requests that are inside finish, and all others
keep their places; their timeouts go on. The pause holds for all processes of
the directory, also for those that start later, until it ends or "caddy
serialize resume". It replaces an earlier pause of the same prefix.

A prefix with placeholders, as it stands in the configuration, pauses all of its
queues. With --wait, the command returns when nobody is inside any more.

Exit codes: 0 done, 1 failed, 2 no such queue, 5 the pause ended before nobody
had been inside for half a second.`,
		Example: `  caddy serialize pause --prefix shop_ --for 2m --wait
  caddy serialize pause --prefix "user_{http.auth.user.id}_" --for 0`,
		Args: cobra.NoArgs,
		RunE: exiting(c.run),
	}
	c.add(cmd)
	cmd.Flags().StringVar(&c.length, "for", "10m", "How long the pause lasts; 0 is until it is resumed")
	cmd.Flags().BoolVar(&c.wait, "wait", false, "Wait until nobody is inside")
	return cmd
}

func resumeCommand() *cobra.Command {
	c := &pauseRun{action: actionResume}
	cmd := &cobra.Command{
		Use:   "resume --prefix P [--path DIR]",
		Short: "Ends the pause of a queue",
		Long: `
Ends the pause of a queue. The next ones enter at once, in order. It is no error
if the queue is not paused. A pause of a prefix with placeholders is ended by
the same prefix; a single queue of it cannot leave the pause. A pause that only
another user can end is an error.

Exit codes: 0 done, 1 failed, 2 no such queue.`,
		Example: `  caddy serialize resume --prefix shop_`,
		Args:    cobra.NoArgs,
		RunE:    exiting(c.run),
	}
	c.add(cmd)
	return cmd
}

// pauseRun is one call of the commands pause and resume.
type pauseRun struct {
	action string
	from   sourceFlags
	prefix string
	length string
	wait   bool
}

func (c *pauseRun) add(cmd *cobra.Command) {
	c.from.add(cmd)
	c.from.addPrefix(cmd, &c.prefix, "Prefix of the queue, or of several, as it is configured")
	_ = cmd.MarkFlagRequired("prefix")
}

func (c *pauseRun) run(cmd *cobra.Command, _ []string) (int, error) {
	if c.prefix == "" {
		return caddy.ExitCodeFailedStartup, errors.New("--prefix: expected the prefix of a queue")
	}
	if _, err := parsePause(c.length); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	source, err := c.from.open(ctx, cmd.ErrOrStderr())
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	states, err := source.pause(ctx, c.prefix, c.action, c.length)
	if errors.Is(err, errNoQueue) {
		return exitNoTicket, fmt.Errorf("%w; \"caddy serialize queues\" lists those there are", err)
	}
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	if len(states) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s in %s: not paused\n", command.Printable(c.prefix), command.Printable(source.String()))
	}
	for _, state := range states {
		fmt.Fprintln(cmd.OutOrStdout(), pauseText(state, c.action))
	}
	if !c.wait {
		return 0, nil
	}
	return c.awaitEmpty(ctx, source, states, cmd.OutOrStdout())
}

func pauseText(q serializer.QueueState, action string) string {
	text := fmt.Sprintf("%s in %s: ", command.Printable(q.Prefix), command.Printable(q.Path))
	switch {
	case action == actionResume && q.PausedUntil != nil:
		return text + "still paused " + untilText(*q.PausedUntil) + ", by the pause of its prefix"
	case action == actionResume:
		return text + "resumed"
	case q.PausedUntil == nil:
		return text + "the pause has ended"
	}
	return fmt.Sprintf("%spaused %s", text, untilText(*q.PausedUntil))
}

const (
	emptyPoll = 50 * time.Millisecond

	// emptyTime is for how long nobody must have been inside. Another process may
	// let one in until it knows of the pause; it looks ten times a second.
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

// countInside counts those inside the paused queues, and in those of their prefixes. A
// queue that is not paused only looks as if it were of a prefix.
func countInside(queues, paused []serializer.QueueState) (inside int) {
	for _, q := range queues {
		of := func(p serializer.QueueState) bool {
			return q.Path == p.Path && (q.Prefix == p.Prefix || placeholder.MatchString(p.Prefix) && serializer.FitsGroup(q.Prefix, p.Prefix))
		}
		if q.PausedUntil != nil && slices.ContainsFunc(paused, of) {
			inside += q.Inside
		}
	}
	return inside
}

// findDoubtful lists the queues that may be of a paused prefix though it does not pause
// them: their tickets came by another prefix, such as that of before a reload. Who is
// there must go; who comes later comes by a prefix that nobody has paused.
func findDoubtful(queues, paused []serializer.QueueState) (doubtful []serializer.QueueState) {
	for _, q := range queues {
		fits := func(p serializer.QueueState) bool {
			return q.Path == p.Path && placeholder.MatchString(p.Prefix) && serializer.FitsGroup(q.Prefix, p.Prefix)
		}
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
		known := listedQueue{QueueState: doubtful[i]}
		if slices.ContainsFunc(q.Tickets, func(t serializer.TicketState) bool { _, ok := known.ticket(t.Token); return ok }) {
			return true
		}
	}
	return false
}

func (a *adminSource) pause(ctx context.Context, prefix, action, length string) (states []serializer.QueueState, err error) {
	path := adminQueues + "/" + url.PathEscape(prefix) + "/" + action
	if action == actionPause {
		path += "?for=" + url.QueryEscape(length)
	}
	err = a.ask(ctx, http.MethodPost, path, &states)
	if isNotFound(err) {
		return nil, fmt.Errorf("%s: %w with the prefix %s", a, errNoQueue, prefix)
	}
	return states, err
}

// pause needs no process that works in the directory, so it cannot know whether the
// prefix is right.
func (d directorySource) pause(ctx context.Context, prefix, action, length string) ([]serializer.QueueState, error) {
	name := expandShorthands(prefix)
	if !placeholder.MatchString(name) {
		name = d.queueName(ctx, prefix)
	}
	until, err := parsePause(length)
	if err != nil {
		return nil, err
	}
	if action == actionPause {
		err = serializer.PauseQueue(string(d), name, until)
	} else {
		err = serializer.ResumeQueue(string(d), name)
	}
	if err != nil {
		return nil, explainStorage(err)
	}
	queues, err := d.queues(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(queues, func(q serializer.QueueState) bool { return q.Prefix == name })
	if i < 0 {
		return []serializer.QueueState{{Path: string(d), Prefix: name}}, nil
	}
	return queues[i : i+1], nil
}

// defaultSource is the default directory, which nobody has named.
type defaultSource struct{ directorySource }

// pause refuses a queue that is not there: it is most probably elsewhere, and a pause
// would hold nobody back. It is no error to resume one that nobody has paused.
func (d defaultSource) pause(ctx context.Context, prefix, action, length string) ([]serializer.QueueState, error) {
	queues, err := d.queues(ctx)
	if err != nil {
		return nil, err
	}
	long := expandShorthands(prefix)
	isThere := func(q serializer.QueueState) bool {
		return slices.Contains([]string{prefix, long, serializer.QueueName(prefix)}, q.Prefix) || placeholder.MatchString(long) && serializer.FitsGroup(q.Prefix, long)
	}
	switch there := slices.ContainsFunc(queues, isThere); {
	case !there && action == actionResume:
		return nil, nil
	case !there:
		return nil, fmt.Errorf("%w with the prefix %s in %s, and no Caddy answers; name the directory with --path, or the admin API with --address",
			errNoQueue, command.Printable(prefix), d)
	}
	return d.directorySource.pause(ctx, prefix, action, length)
}
