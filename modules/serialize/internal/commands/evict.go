package commands

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

const defaultWait = 10 * time.Second

func evictCommand() *cobra.Command {
	c := &evictRun{}
	cmd := &cobra.Command{
		Use:   "evict --prefix P [--force] TOKEN",
		Short: "Evicts a ticket from a queue",
		Long: `
Evicts a ticket from a queue. A waiting request is refused at once, with the
reason "evicted". A request inside is cancelled, and the next one enters when it
has returned. Before that, the command asks for confirmation, unless --force is
given.

The process that owns the ticket evicts it. The command waits for that, and
reports the result.

Exit codes: 0 done, 1 failed, 2 no such ticket, 3 the request is inside and the
eviction was not confirmed, 4 the owner did not respond.`,
		Example: `  caddy serialize evict --prefix checkout_ 1795238222081727`,
		Args:    cobra.ExactArgs(1),
		RunE:    exiting(c.run),
	}
	c.from.add(cmd)
	c.from.addPrefix(cmd, &c.prefix, "Prefix of the queue")
	cmd.Flags().BoolVarP(&c.force, "force", "f", false, "Evict a request that is inside without asking")
	cmd.Flags().DurationVar(&c.wait, "wait", defaultWait, "How long to wait for a request inside to return")
	_ = cmd.MarkFlagRequired("prefix")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return c.from.completeToken(cmd, args, c.prefix)
	}
	return cmd
}

// evictRun is one call of the command evict.
type evictRun struct {
	from   sourceFlags
	prefix string
	force  bool
	wait   time.Duration
}

func (c *evictRun) run(ctx context.Context, cmd *cobra.Command, args []string) (int, error) {
	token, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return caddy.ExitCodeFailedStartup, fmt.Errorf("token %q: expected the number of a ticket, as \"caddy serialize queues\" shows it", args[0])
	}
	source, err := c.from.open()
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	evicted, err := c.evict(ctx, source, token, c.force)
	if errors.Is(err, errInside) {
		if !askInside(cmd, evicted.ticket) {
			return exitInside, fmt.Errorf("%w; left alone (--force evicts it without asking)", err)
		}
		evicted, err = c.evict(ctx, source, token, true)
	}
	if err != nil {
		return failed(err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), evictionText(c.prefix, evicted))
	return 0, nil
}

func (c *evictRun) evict(ctx context.Context, source *adminSource, token uint64, inside bool) (eviction, error) {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	return source.evict(ctx, c.prefix, token, inside)
}

func failed(err error) (int, error) {
	switch {
	case errors.Is(err, serializer.ErrNoTicket):
		return exitNoTicket, fmt.Errorf("%w; \"caddy serialize queues\" lists those there are", err)
	case errors.Is(err, errNotObeyed):
		return exitNotObeyed, fmt.Errorf("%w; it may be stopped: continue it, or end it, which frees all its tickets", err)
	}
	return caddy.ExitCodeFailedStartup, err
}

// askInside asks whether a ticket that is inside is to be evicted. If nobody
// can answer, it is not.
func askInside(cmd *cobra.Command, t serializer.TicketState) bool {
	if !isTerminal(cmd.InOrStdin()) {
		return false
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Ticket %s is inside, for %s, in %s.\nIts request will be cancelled in the middle of its work. Evict it? [y/N] ",
		t.Token, queueapi.RequestOf(t), command.Printable(t.Owner))
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

func evictionText(prefix string, e eviction) string {
	what := fmt.Sprintf("ticket %s, %s in queue %s: ", e.ticket.Token, e.ticket.State, prefix)
	switch {
	case e.returned && e.ticket.State == serializer.StateWaiting:
		return what + "evicted; its request is refused"
	case e.returned:
		return what + "evicted; its request was cancelled and has returned, so the next may enter"
	}
	return what + "evicted; its request was cancelled but has not returned yet. The next enters when it has"
}
