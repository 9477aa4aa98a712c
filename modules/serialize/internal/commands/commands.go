// Package commands holds the commands "caddy serialize ...", which ask a running Caddy
// through its admin API.
package commands

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// exitCodes are those for the errors of the admin API. exitPauseEnded is one more.
var exitCodes = map[int]int{http.StatusNotFound: 2, http.StatusConflict: 3, http.StatusGatewayTimeout: 4}

const (
	exitPauseEnded = 5

	exitText = `
Exit codes: 0 done, 1 no Caddy answers or another error, 2 no such queue or
ticket, 3 the request is inside and its eviction was not confirmed, 4 the process
of the ticket does not answer, 5 the pause ended before nobody was inside.`
)

var errPauseEnded = errors.New("the pause has ended")

func exitCode(err error) int {
	if answered, ok := errors.AsType[*answeredError](err); ok {
		return cmp.Or(exitCodes[answered.status], caddy.ExitCodeFailedStartup)
	}
	if errors.Is(err, errPauseEnded) {
		return exitPauseEnded
	}
	if err != nil {
		return caddy.ExitCodeFailedStartup
	}
	return caddy.ExitCodeSuccess
}

// run is one call of a command.
type run struct {
	*cobra.Command
	address, config, adapter string
	path, prefix, length     string
	json, force, wait        bool
}

// add adds a command. Its context ends when it is interrupted.
func add(to *cobra.Command, cmd *cobra.Command, needsPrefix bool, do func(context.Context, *run, []string) error) *run {
	r := &run{Command: cmd}
	flags := cmd.Flags()
	flags.StringVar(&r.prefix, "prefix", "", "Prefix of the queue; one that ends in * means all that begin so")
	flags.StringVar(&r.path, "path", "", "Only the queues in this directory")
	flags.StringVar(&r.address, "address", "", "Address of the admin API of a running Caddy")
	flags.StringVarP(&r.config, "config", "c", "", "Configuration file with the address of the admin API")
	flags.StringVarP(&r.adapter, "adapter", "a", "", "Name of the config adapter of --config")
	if needsPrefix {
		_ = cmd.MarkFlagRequired("prefix")
	}
	cmd.Args = cobra.ExactArgs(strings.Count(cmd.Use, "TOKEN"))
	cmd.Long += "\n" + exitText
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
		defer stop()
		return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) {
			err := do(ctx, r, args)
			return exitCode(err), err
		})(cmd, args)
	}
	to.AddCommand(cmd)
	return r
}

// Add adds the commands to "caddy serialize".
func Add(cmd *cobra.Command) {
	queues := add(cmd, &cobra.Command{
		Use:   "queues [--prefix P] [--json]",
		Short: "Lists queues",
		Long: `
Lists queues. For each ticket, the list has its place, its wait, its time
inside, the client, the request, and the process that owns it. A Caddy knows its
own requests, and the tickets of other processes in the same queues.`,
		Example: `  caddy serialize queues
  caddy serialize queues --address unix//run/caddy/admin.sock
  caddy serialize queues --prefix "checkout_*"`,
	}, false, list)
	queues.Flags().BoolVar(&queues.json, "json", false, "Print JSON, as the admin API does")

	eviction := add(cmd, &cobra.Command{
		Use:   "evict --prefix P [--force] TOKEN",
		Short: "Evicts a ticket from a queue",
		Long: `
Evicts a ticket from a queue. A waiting request is refused at once, with the
reason "evicted". A request inside is cancelled, and the next one enters when its
handlers have returned. Before that, the command asks, unless --force is given.
The process that owns the ticket evicts it. The command waits three seconds for
that, and says what became of it.

A script behind php_fastcgi goes on in spite of its cancellation, and so does the
turn. The option read_timeout of its transport bounds that.`,
		Example: `  caddy serialize evict --prefix checkout_ 1795238222081727`,
	}, true, evict)
	eviction.Flags().BoolVarP(&eviction.force, "force", "f", false, "Evict a request that is inside without asking")

	pausing := add(cmd, &cobra.Command{
		Use:   "pause --prefix P [--for 10m] [--wait]",
		Short: "Pauses a queue",
		Long: `
Pauses a queue, so that no request enters. Requests inside finish. Waiting
requests keep their places, and their timeouts keep running. The pause applies to
all processes that share the queue, including those that start later. It lasts
for the time given by --for, or until "caddy serialize resume", and replaces an
earlier pause of the same prefix. With --wait, the command returns when no
request has been inside for half a second.`,
		Example: `  caddy serialize pause --prefix shop_ --for 2m --wait
  caddy serialize pause --prefix "user_*" --for 0`,
	}, true, pause)
	pausing.Flags().StringVar(&pausing.length, "for", "10m", "How long the pause lasts; 0 means until it is resumed")
	pausing.Flags().BoolVar(&pausing.wait, "wait", false, "Wait until no request is inside")

	add(cmd, &cobra.Command{
		Use:   "resume --prefix P",
		Short: "Ends the pause of a queue",
		Long: `
Ends the pause of a queue. The next waiting request enters at once. If the queue
is not paused, that is no error. A pause of several queues, with an asterisk,
cannot be ended for one of them alone.`,
		Example: `  caddy serialize resume --prefix shop_`,
	}, true, resume)
	command.Group(cmd)
}

// ask makes a request to the admin API.
func (r *run) ask(ctx context.Context, method, path string, answer any) error {
	address, err := caddycmd.DetermineAdminAPIAddress(r.address, nil, r.config, r.adapter)
	if err != nil {
		return fmt.Errorf("finding the address of the admin API: %w", err)
	}
	r.address = address
	return ask(ctx, address, method, path, answer)
}

// askOf makes a request about the queue that the flags name.
func (r *run) askOf(ctx context.Context, method, action string, answer any) error {
	if r.prefix == "" {
		return errors.New("--prefix: expected the prefix of a queue")
	}
	queue := r.prefix
	if r.path != "" {
		queue = filepath.Clean(r.path) + "/" + r.prefix
	}
	return r.ask(ctx, method, queueapi.Path+"/"+url.PathEscape(queue)+"/"+action, answer)
}

// queues lists the queues that the flags name. The error is about all that cannot be read.
func (r *run) queues(ctx context.Context) (queues []queueapi.Queue, err error) {
	if err := r.ask(ctx, http.MethodGet, queueapi.Path, &queues); err != nil {
		return nil, err
	}
	prefix := queueapi.Name(cmp.Or(r.prefix, "*"))
	queues = slices.DeleteFunc(queues, func(q queueapi.Queue) bool {
		return r.path != "" && q.Path != filepath.Clean(r.path) || !queueapi.Matches(prefix, q.Prefix)
	})
	for _, q := range queues {
		if q.Error != "" {
			err = errors.Join(err, fmt.Errorf("queue %s in %s cannot be read: %s", q.Prefix, q.Path, command.Printable(q.Error)))
		}
	}
	return queues, err
}

func list(ctx context.Context, r *run, _ []string) error {
	queues, failed := r.queues(ctx)
	if queues == nil {
		return failed
	}
	out := r.OutOrStdout()
	if r.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return errors.Join(enc.Encode(queues), failed)
	}
	if len(queues) == 0 {
		fmt.Fprintf(out, "nobody is in a queue of the Caddy at %s\n", r.address)
	}
	writeTables(out, queues, time.Now())
	return failed
}

func evict(ctx context.Context, r *run, args []string) error {
	var evicted queueapi.Eviction
	path := url.PathEscape(args[0])
	careful := path + "?careful"
	if r.force {
		careful = path
	}
	err := r.askOf(ctx, http.MethodDelete, careful, &evicted)
	if answered, ok := errors.AsType[*answeredError](err); ok && answered.status == http.StatusConflict {
		if !r.confirmed(err) {
			return fmt.Errorf("%w; it was left alone (--force evicts it without asking)", err)
		}
		err = r.askOf(ctx, http.MethodDelete, path, &evicted)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &answeredError{fmt.Errorf("%w; it does not answer, and may evict the ticket once it continues", err), http.StatusGatewayTimeout}
	}
	if err == nil {
		fmt.Fprintln(r.OutOrStdout(), command.Printable(fmt.Sprintf(
			"ticket %s, %s in queue %s: %s", evicted.Token, evicted.State, r.prefix, evicted.Result)))
	}
	return err
}

// confirmed asks whether a ticket that is inside is to be evicted. If nobody can answer, it
// is not.
func (r *run) confirmed(why error) bool {
	file, ok := r.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return false
	}
	fmt.Fprintf(r.ErrOrStderr(), "%v.\nIts request will be cancelled in the middle of its work. Evict it? [y/N] ", why)
	answer, _ := bufio.NewReader(file).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

func pause(ctx context.Context, r *run, _ []string) error {
	err := r.change(ctx, queueapi.Pause+"?for="+url.QueryEscape(r.length), "the pause has ended", "paused ")
	if err != nil || !r.wait {
		return err
	}
	if err := r.awaitEmpty(ctx); err != nil {
		return fmt.Errorf("waiting until nobody is inside %s: %w", r.prefix, err)
	}
	fmt.Fprintln(r.OutOrStdout(), "nobody is inside")
	return nil
}

func resume(ctx context.Context, r *run, _ []string) error {
	return r.change(ctx, queueapi.Resume, "resumed", "by a pause of several queues still paused ")
}

// change pauses or resumes queues, and says of each whether it is paused now.
func (r *run) change(ctx context.Context, action, isNot, is string) error {
	var answer json.RawMessage
	if err := r.askOf(ctx, http.MethodPost, action, &answer); err != nil {
		return err
	}
	if answer[0] == '{' { // of a path, there is one queue
		answer = slices.Concat([]byte("["), answer, []byte("]"))
	}
	var states []serializer.QueueState
	if err := json.Unmarshal(answer, &states); err != nil {
		return fmt.Errorf("reading the answer of the Caddy at %s: %w", r.address, err)
	}
	for _, q := range states {
		text := isNot
		if q.PausedUntil != nil {
			text = is + queueapi.UntilText(*q.PausedUntil)
		}
		fmt.Fprintln(r.OutOrStdout(), command.Printable(q.Prefix+" in "+q.Path+": "+text))
	}
	return nil
}

const (
	emptyPoll = 50 * time.Millisecond

	// emptyTime is for how long nobody must have been inside. Another process may
	// let one in until it knows of the pause; it checks ten times a second.
	emptyTime = 500 * time.Millisecond
)

// awaitEmpty returns when nobody is inside the queues that were paused.
func (r *run) awaitEmpty(ctx context.Context) error {
	for empty := time.Now(); time.Since(empty) < emptyTime; {
		queues, err := r.queues(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%w; the pause goes on", err)
		case len(queues) == 0 || slices.ContainsFunc(queues, func(q queueapi.Queue) bool { return q.PausedUntil == nil }):
			return errPauseEnded
		case slices.ContainsFunc(queues, func(q queueapi.Queue) bool { return q.Inside > 0 }):
			empty = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(emptyPoll):
		}
	}
	return nil
}
