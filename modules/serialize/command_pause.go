package serialize

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

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
