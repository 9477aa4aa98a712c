package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/serializer"
)

const watchInterval = time.Second

func queuesCommand() *cobra.Command {
	c := &queuesRun{}
	cmd := &cobra.Command{
		Use:   "queues [--prefix P] [--json] [--watch]",
		Short: "Lists queues",
		Long: `
Lists queues. For each ticket, the list has its place, its wait, its time
inside, the client, the request, and the process that owns it.

The command asks a running Caddy. That knows its own requests, and the tickets of
other processes in the same queues.

A prefix that ends in an asterisk selects all queues whose prefix begins with the
rest. With --watch, the command prints the list every second until it is
interrupted. With --watch and --json, each list is one line.`,
		Example: `  caddy serialize queues
  caddy serialize queues --address unix//run/caddy/admin.sock
  caddy serialize queues --prefix "checkout_*"`,
		Args: cobra.NoArgs,
		RunE: exiting(c.run),
	}
	c.from.add(cmd)
	c.from.addPrefix(cmd, &c.prefix, "List only the queue of this prefix; one that ends in * means all that begin so")
	cmd.Flags().BoolVar(&c.json, "json", false, "Print JSON, as the admin API does")
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "Print again every second")
	return cmd
}

// queuesRun is one call of the command queues.
type queuesRun struct {
	from        sourceFlags
	prefix      string
	json, watch bool
}

func (c *queuesRun) run(ctx context.Context, cmd *cobra.Command, _ []string) (int, error) {
	source, err := c.from.open()
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	out := cmd.OutOrStdout()
	for {
		queues, unread := c.read(ctx, source)
		if ctx.Err() != nil {
			return 0, nil //nolint:nilerr // an interruption ends the list, and is no failure
		}
		if unread != nil && !isUnread(unread) {
			return caddy.ExitCodeFailedStartup, unread
		}
		if err := c.print(out, source, queues); err != nil {
			return caddy.ExitCodeFailedStartup, fmt.Errorf("writing the list: %w", err)
		}
		if unread != nil {
			return caddy.ExitCodeFailedStartup, unread
		}
		if !c.watch {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return 0, nil
		case <-time.After(watchInterval):
		}
	}
}

// read lists the queues that were asked for.
func (c *queuesRun) read(ctx context.Context, source *adminSource) ([]serializer.QueueState, error) {
	queues, err := source.queues(ctx)
	if err != nil && !isUnread(err) {
		return nil, err
	}
	wanted := make([]serializer.QueueState, 0, len(queues))
	for _, q := range queues {
		if c.prefix == "" || prefixMatches(c.prefix, q.Prefix) {
			wanted = append(wanted, q)
		}
	}
	return wanted, err
}

func (c *queuesRun) print(out io.Writer, source *adminSource, queues []serializer.QueueState) error {
	if c.json {
		enc := json.NewEncoder(out)
		if !c.watch {
			enc.SetIndent("", "  ")
		}
		return enc.Encode(queues)
	}
	var page strings.Builder
	if c.watch {
		if isTerminal(out) {
			page.WriteString("\x1b[H\x1b[2J") // home, and clear the screen
		}
		fmt.Fprintf(&page, "%s  %s\n\n", time.Now().Format(time.TimeOnly), source)
	}
	if len(queues) == 0 {
		fmt.Fprintf(&page, "nobody is in a queue of %s\n", source)
	}
	writeQueueTables(&page, queues, time.Now())
	_, err := io.WriteString(out, page.String())
	return err
}
