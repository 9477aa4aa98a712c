package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

func pauseCommand() *cobra.Command {
	c := &pauseRun{action: queueapi.Pause}
	cmd := &cobra.Command{
		Use:   "pause --prefix P [--for 10m] [--wait]",
		Short: "Pauses a queue",
		Long: `
Pauses a queue, so that no request enters. Requests inside finish. Waiting
requests keep their places, and their timeouts keep running. The pause applies to
all processes of the directory, including those that start later. It lasts for
the time given by --for, or until "caddy serialize resume", and replaces an
earlier pause of the same prefix.

A prefix that ends in an asterisk pauses all queues whose prefix begins with the
rest, also those that do not exist yet. With --wait, the command returns when no
request has been inside for half a second.

Exit codes: 0 done, 1 failed, 2 no such queue, 5 the pause ended before the
command was done.`,
		Example: `  caddy serialize pause --prefix shop_ --for 2m --wait
  caddy serialize pause --prefix "user_*" --for 0`,
		Args: cobra.NoArgs,
		RunE: exiting(c.run),
	}
	c.add(cmd)
	cmd.Flags().StringVar(&c.length, "for", "10m", "How long the pause lasts; 0 means until it is resumed")
	cmd.Flags().BoolVar(&c.wait, "wait", false, "Wait until no request is inside")
	return cmd
}

func resumeCommand() *cobra.Command {
	c := &pauseRun{action: queueapi.Resume}
	cmd := &cobra.Command{
		Use:   "resume --prefix P",
		Short: "Ends the pause of a queue",
		Long: `
Ends the pause of a queue. The next waiting request enters at once. If the queue
is not paused, that is no error.

A prefix that ends in an asterisk ends the pauses of all queues whose prefix
begins with the rest. Such a pause cannot be ended for one of its queues alone.

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
	c.from.addPrefix(cmd, &c.prefix, "Prefix of the queue; one that ends in * means all that begin so")
	_ = cmd.MarkFlagRequired("prefix")
}

func (c *pauseRun) run(ctx context.Context, cmd *cobra.Command, _ []string) (int, error) {
	if c.prefix == "" {
		return caddy.ExitCodeFailedStartup, errors.New("--prefix: expected the prefix of a queue")
	}
	until, err := queueapi.ParsePause(c.length)
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	source, err := c.from.open()
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	states, err := source.pause(ctx, c.prefix, c.action, c.length)
	if errors.Is(err, queueapi.ErrNoQueue) {
		return exitNoTicket, fmt.Errorf("%w; \"caddy serialize queues\" lists those there are", err)
	}
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	for _, state := range states {
		fmt.Fprintln(cmd.OutOrStdout(), pauseText(state, c.action, until))
	}
	if c.action == queueapi.Pause && slices.ContainsFunc(states, isNotPaused) {
		return exitPauseEnded, fmt.Errorf("pausing %s: the pause has ended already; --for is too short, or somebody has resumed it", c.prefix)
	}
	if !c.wait {
		return 0, nil
	}
	return c.awaitEmpty(ctx, source, states, cmd.OutOrStdout())
}

func isNotPaused(q serializer.QueueState) bool { return q.PausedUntil == nil }

// pauseText says what became of a queue. asked is the end of the pause that was asked for;
// zero means until it is resumed.
func pauseText(q serializer.QueueState, action string, asked time.Time) string {
	text := fmt.Sprintf("%s in %s: ", command.Printable(q.Prefix), command.Printable(q.Path))
	switch {
	case action == queueapi.Resume && q.PausedUntil != nil:
		return text + "still paused " + queueapi.UntilText(*q.PausedUntil) + ", by a pause of several queues"
	case action == queueapi.Resume:
		return text + "resumed"
	case q.PausedUntil == nil:
		return text + "the pause has ended"
	}
	text += "paused " + queueapi.UntilText(*q.PausedUntil)
	if !asked.IsZero() && q.PausedUntil.After(asked.Add(pauseSlack)) {
		text += ", by a longer pause of several queues"
	}
	return text
}

// pauseSlack is how much later than asked for a pause may end, because it begins later.
const pauseSlack = 5 * time.Second
