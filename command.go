package orderly

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// serializeCommands are "caddy serialize queues" and "caddy serialize evict".
var serializeCommands = caddycmd.Command{
	Name:  "serialize",
	Usage: "queues|evict",
	Short: "Shows queues of requests, and takes tickets out of them",
	Long: `
Shows the queues of a lock directory, and takes tickets out of them. Both read
the directory itself: no server needs to run, and any number may.`,
	CobraFunc: addSerializeCommands,
}

// Exit codes of the commands, besides 0 and 1.
const (
	exitNoTicket  = 2
	exitInside    = 3 // and nobody said yes
	exitNotObeyed = 4
)

const (
	watchInterval = time.Second
	defaultWait   = 10 * time.Second
)

func addSerializeCommands(cmd *cobra.Command) {
	cmd.AddCommand(queuesCommand(), evictCommand())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q; expected queues or evict", args[0])
		}
		return cmd.Help()
	}
}

func queuesCommand() *cobra.Command {
	c := &queuesRun{}
	cmd := &cobra.Command{
		Use:   "queues [--path DIR] [--prefix P] [--json] [--watch]",
		Short: "Lists the queues of a lock directory",
		Long: `
Lists the queues of a lock directory: each ticket's place and age, the client,
the process that owns it, whether that process lives, and whether the request
is inside or waits. It only reads the directory, and makes no file there.

A prefix that ends in * stands for all that begin like it. With --watch, the
list is made anew every second until it is interrupted; together with --json,
each list is one line.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			code, err := c.run(cmd)
			return exit(cmd, code, err)
		},
	}
	cmd.Flags().StringVar(&c.path, "path", defaultPath(), "Directory of the lock files")
	cmd.Flags().StringVar(&c.prefix, "prefix", "", "Only the queue of this prefix")
	cmd.Flags().BoolVar(&c.json, "json", false, "Print JSON, as the admin API does")
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "Print again every second")
	return cmd
}

// queuesRun is one call of the command queues.
type queuesRun struct {
	path, prefix string
	json, watch  bool
}

func (c *queuesRun) run(cmd *cobra.Command) (int, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	out := cmd.OutOrStdout()
	hinted := false
	for {
		queues, err := c.read()
		if err != nil {
			return caddy.ExitCodeFailedStartup, err
		}
		if err := c.print(out, queues); err != nil {
			return caddy.ExitCodeFailedStartup, fmt.Errorf("writing the list: %w", err)
		}
		if !hinted && unreadable(queues) {
			hinted = true
			fmt.Fprintf(cmd.ErrOrStderr(), "some lock files in %s may not be opened by this user, so their owners and rules are unknown; "+
				"run this as the user of the server, or as root\n", c.path)
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
func (c *queuesRun) read() ([]serializer.QueueState, error) {
	queues, err := serializer.Inspect(c.path)
	if err != nil {
		return nil, explainStorage(err)
	}
	wanted := make([]serializer.QueueState, 0, len(queues))
	for _, q := range queues {
		if c.prefix == "" || prefixMatches(c.prefix, q.Prefix) {
			wanted = append(wanted, q)
		}
	}
	return wanted, nil
}

// prefixMatches compares a prefix as people write it with a queue's name, in
// which there never is a *.
func prefixMatches(text, queue string) bool {
	if start, ok := strings.CutSuffix(text, "*"); ok {
		return strings.HasPrefix(queue, start)
	}
	return queue == text || queue == serializer.QueueName(text)
}

func unreadable(queues []serializer.QueueState) bool {
	return slices.ContainsFunc(queues, func(q serializer.QueueState) bool {
		return slices.ContainsFunc(q.Tickets, func(t serializer.TicketState) bool { return t.Alive == nil })
	})
}

func (c *queuesRun) print(out io.Writer, queues []serializer.QueueState) error {
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
		fmt.Fprintf(&page, "%s  %s\n\n", time.Now().Format(time.TimeOnly), c.path)
	}
	writeQueueTables(&page, queues, c.path, time.Now())
	_, err := io.WriteString(out, page.String())
	return err
}

func evictCommand() *cobra.Command {
	c := &evictRun{}
	cmd := &cobra.Command{
		Use:   "evict --path DIR --prefix P [--force] <token>",
		Short: "Takes a ticket out of a queue",
		Long: `
Takes a ticket out of a queue. A request that waits is refused at once, with the
reason "evicted". One that is inside is cancelled, and the next enters when it
has returned; that is only done after asking, or with --force. The process that
owns the ticket does it; the command waits until it has, and says what happened.
A ticket that no living process owns is removed.

Exit codes: 0 done, 1 failed, 2 no such ticket, 3 it is inside and nobody said
yes, 4 the owner does not react.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := c.run(cmd, args[0])
			return exit(cmd, code, err)
		},
	}
	cmd.Flags().StringVar(&c.path, "path", defaultPath(), "Directory of the lock files")
	cmd.Flags().StringVar(&c.prefix, "prefix", "", "Prefix of the queue")
	cmd.Flags().BoolVarP(&c.force, "force", "f", false, "Do not ask before evicting what is inside")
	cmd.Flags().DurationVar(&c.wait, "wait", defaultWait, "How long to wait until what was inside has returned")
	_ = cmd.MarkFlagRequired("prefix")
	return cmd
}

// evictRun is one call of the command evict.
type evictRun struct {
	path, prefix string
	force        bool
	wait         time.Duration
}

func (c *evictRun) run(cmd *cobra.Command, text string) (int, error) {
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return caddy.ExitCodeFailedStartup, fmt.Errorf("token %q: expected the number of a ticket, as \"caddy serialize queues\" shows it", text)
	}
	queue, err := c.queue()
	if err != nil {
		return c.failed(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	evicted, err := c.evict(ctx, queue, token, c.force)
	if errors.Is(err, serializer.ErrInside) {
		if !askInside(cmd, evicted.Ticket) {
			return exitInside, fmt.Errorf("%w; left alone (--force evicts it without asking)", err)
		}
		evicted, err = c.evict(ctx, queue, token, true)
	}
	if err != nil {
		return c.failed(err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), evictionText(queue, evicted))
	return 0, nil
}

func (c *evictRun) evict(ctx context.Context, queue string, token uint64, inside bool) (serializer.Evicted, error) {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	return serializer.EvictFrom(ctx, c.path, queue, token, inside)
}

// queue is the name of the queue that has the prefix: as it stands in the list
// of queues, or as it stands in a configuration.
func (c *evictRun) queue() (string, error) {
	queues, err := serializer.Inspect(c.path)
	if err != nil {
		return "", err
	}
	for _, q := range queues {
		if q.Prefix == c.prefix {
			return q.Prefix, nil
		}
	}
	return serializer.QueueName(c.prefix), nil
}

func (c *evictRun) failed(err error) (int, error) {
	switch {
	case errors.Is(err, serializer.ErrNoTicket):
		return exitNoTicket, fmt.Errorf("%w; \"caddy serialize queues --path %s\" lists those there are", err, c.path)
	case errors.Is(err, serializer.ErrNotObeyed):
		return exitNotObeyed, fmt.Errorf("%w; it may be stopped: continue it, or end it, which frees all its tickets", err)
	}
	return caddy.ExitCodeFailedStartup, explainStorage(err)
}

// askInside asks whether a ticket that is inside is to be evicted. Where nobody
// can answer, it is not.
func askInside(cmd *cobra.Command, t serializer.TicketState) bool {
	if !isTerminal(cmd.InOrStdin()) {
		return false
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Ticket %s is inside, for a request of %s in %s.\nIts request will be cancelled in the middle of its work. Evict it? [y/N] ",
		t.Token, cmp.Or(t.Client, "an unknown client"), printable(t.Owner))
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

func evictionText(queue string, e serializer.Evicted) string {
	what := fmt.Sprintf("ticket %s, %s in queue %s: ", e.Ticket.Token, e.Ticket.State, queue)
	switch {
	case e.Removed:
		return what + "removed; no process of Orderly that lives owned it (" + printable(e.Ticket.Owner) + ")"
	case e.Returned && e.Ticket.State == serializer.StateWaiting:
		return what + "evicted; its request is refused"
	case e.Returned:
		return what + "evicted; its request was cancelled and has returned, so the next may enter"
	}
	return what + "evicted; its request was told to stop but has not returned yet. The next enters when it has"
}

// explainStorage says what to do about a directory that cannot be read.
func explainStorage(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; name the path of the serialize directive with --path", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run this as the user of the server, or as root", err)
	}
	return err
}

// isTerminal reports whether somebody sits at the other end of a file.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// exit makes Caddy's main function end with a code.
func exit(cmd *cobra.Command, code int, err error) error {
	return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return code, err })(cmd, nil)
}
