// Package commands holds the commands "caddy serialize ...", which ask a running Caddy
// through its admin API.
package commands

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/serializer"
)

const (
	exitNone       = 2
	exitInside     = 3
	exitNoAnswer   = 4
	exitPauseEnded = 5
)

// exitCodes are those for the errors of the admin API.
var exitCodes = map[int]int{http.StatusNotFound: exitNone, http.StatusGatewayTimeout: exitNoAnswer}

// failure is an error with an exit code.
type failure struct {
	error
	code int
}

// run is one call of a command.
type run struct {
	*cobra.Command
	address, path, prefix string
	length, until         string
	json, force, wait     bool
}

// Add adds the commands to "caddy serialize".
func Add(group *cobra.Command) {
	r := new(run)
	flags := group.PersistentFlags()
	flags.StringVar(&r.prefix, "prefix", "", "Prefix of the queue; one that ends in * means all that begin so")
	flags.StringVar(&r.path, "path", "", "Only the queues in this directory")
	flags.StringVar(&r.address, "address", caddy.DefaultAdminListen, "Address of the admin API of a running Caddy")
	add := func(do func(*run, []string) error, cmd *cobra.Command) *cobra.Command {
		cmd.Args = cobra.ExactArgs(strings.Count(cmd.Use, "TOKEN"))
		cmd.RunE = func(_ *cobra.Command, args []string) error {
			r.Command = cmd
			return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) {
				err := do(r, args)
				if failed, ok := errors.AsType[*failure](err); ok {
					return failed.code, err
				}
				return 0, err // which Caddy makes 1 for an error
			})(cmd, args)
		}
		group.AddCommand(cmd)
		return cmd
	}

	add(list, &cobra.Command{
		Use:   "queues [--prefix P] [--json]",
		Short: "Lists queues",
		Long: `
Lists queues, with their tickets. A Caddy knows its own requests, and the
tickets of other processes in the same queues.`,
	}).Flags().BoolVar(&r.json, "json", false, "Print JSON, as the admin API does")

	add(evict, &cobra.Command{
		Use:   "evict --prefix P [--force] TOKEN",
		Short: "Evicts a ticket from a queue",
		Long: `
Evicts a ticket from a queue, and says what became of it within three seconds. A
waiting request is refused, with the reason "evicted". A request inside is
cancelled, and the next one enters when its handlers have returned.`,
	}).Flags().BoolVarP(&r.force, "force", "f", false, "Evict a request that is inside without asking")

	pauses := add(pause, &cobra.Command{
		Use:   "pause --prefix P [--for 10m | --until T] [--wait]",
		Short: "Pauses a queue",
		Long: `
Pauses a queue, in all processes. No request enters. Requests inside finish.
Waiting requests keep their places, and their timeouts keep running.`,
	})
	flags = pauses.Flags()
	flags.StringVar(&r.length, "for", queueview.DefaultPause, "How long the pause lasts; 0 means until it is resumed")
	flags.StringVar(&r.until, "until", "", "When the pause ends, such as 2026-12-24T10:00:00+01:00 (RFC 3339), in place of --for")
	pauses.MarkFlagsMutuallyExclusive("for", "until")
	flags.BoolVar(&r.wait, "wait", false, "Wait until no request has been inside for half a second")

	add(resume, &cobra.Command{
		Use:   "resume --prefix P",
		Short: "Ends the pause of a queue",
		Long: `
Ends the pause of a queue. If the queue is not paused, that is no error. A pause
of several queues, with an asterisk, cannot be ended for one of them alone.`,
	})
	command.Group(group)
}

// queue is what the flags name.
func (r *run) queue() string {
	if r.path != "" {
		return filepath.Clean(r.path) + "/" + cmp.Or(r.prefix, "*")
	}
	return r.prefix
}

// act does something to the queue that the flags name.
func (r *run) act(method, action string, answer any) error {
	if r.prefix == "" {
		return errors.New("--prefix: expected the prefix of a queue")
	}
	return r.ask(method, queueview.Path+"/"+url.PathEscape(r.queue())+"/"+action, answer)
}

// queues lists the queues that the flags name. The error is about all that cannot be read.
func (r *run) queues() (queues []queueview.Queue, err error) {
	if err := r.ask(http.MethodGet, queueview.Path+"?queue="+url.QueryEscape(r.queue()), &queues); err != nil {
		return nil, err
	}
	for _, q := range queues {
		if q.Error != "" {
			err = errors.Join(err, complain("queue %s in %s cannot be read: %s", q.Prefix, q.Path, q.Error))
		}
	}
	return queues, err
}

func list(r *run, _ []string) error {
	queues, failed := r.queues()
	switch name := r.queue(); {
	case len(queues) > 0 || failed != nil:
	case name != "" && name != "*":
		failed = &failure{fmt.Errorf("the Caddy at %s has no queue %s; caddy serialize queues lists those that it has", r.address, name), exitNone}
	case !r.json:
		r.say("nobody is in a queue of the Caddy at %s", r.address)
	}
	if r.json && queues != nil {
		return errors.Join(command.WriteJSON(r.OutOrStdout(), "  ", queues), failed)
	}
	writeTables(r.OutOrStdout(), queues, time.Now())
	return failed
}

func evict(r *run, args []string) error {
	queues, _ := r.queues() // what cannot be listed cannot be evicted either
	for _, q := range queues {
		for _, t := range queueview.Rows(time.Now(), q.Tickets) {
			if t.Token == args[0] && t.State == serializer.StateInside && !r.force && !r.confirmed(t) {
				return &failure{fmt.Errorf("ticket %s is inside, and was left alone (--force evicts it without asking)", t.Token), exitInside}
			}
		}
	}
	var evicted queueview.Eviction
	err := r.act(http.MethodDelete, url.PathEscape(args[0]), &evicted)
	if errors.Is(err, context.DeadlineExceeded) {
		return &failure{fmt.Errorf("%w; it may evict the ticket once it continues", err), exitNoAnswer}
	}
	if err == nil {
		r.say("ticket %s, %s in queue %s: %s", evicted.Token, evicted.State, r.prefix, evicted.Result)
	}
	return err
}

// confirmed asks whether a ticket that is inside is to be evicted. If nobody answers, it
// is not.
func (r *run) confirmed(t queueview.Row) bool {
	text := fmt.Sprintf("ticket %s is %s: %s", t.Token, t.StateText(), queueview.Known(t.About, t.From, t.TXID, t.Owner))
	fmt.Fprintf(r.ErrOrStderr(), "%s. An eviction ends a visit, cancels a request in the middle of its work, "+
		"and removes the file of another program, which works on.\nEvict it? [y/N] ", command.Printable(text))
	answer, _ := bufio.NewReader(r.InOrStdin()).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

func pause(r *run, _ []string) error {
	var changed []queueview.Paused
	query := url.Values{"for": {r.length}}
	if r.until != "" {
		query = url.Values{"until": {r.until}}
	}
	err := r.act(http.MethodPost, "pause?"+query.Encode(), &changed)
	for _, q := range changed {
		text := "the pause has ended"
		if q.PausedUntil != nil {
			text = "paused " + queueview.UntilText(*q.PausedUntil)
		}
		r.say("%s in %s: %s", q.Prefix, q.Path, text)
	}
	if err != nil || !r.wait {
		return err
	}
	return r.awaitEmpty()
}

func resume(r *run, _ []string) error {
	var changed []queueview.Paused
	err := r.act(http.MethodPost, "resume", &changed)
	for _, q := range changed {
		if q.PausedUntil == nil {
			r.say("%s in %s: resumed", q.Prefix, q.Path)
			continue
		}
		err = errors.Join(err, complain("%s in %s: still paused %s, by a pause of several queues; caddy serialize queues lists it",
			q.Prefix, q.Path, queueview.UntilText(*q.PausedUntil)))
	}
	return err
}

// complain returns an error of one line, in which nothing controls a terminal.
func complain(format string, args ...any) error {
	return errors.New(command.Printable(fmt.Sprintf(format, args...)))
}

// say prints a line, in which nothing controls a terminal.
func (r *run) say(format string, args ...any) {
	fmt.Fprintln(r.OutOrStdout(), command.Printable(fmt.Sprintf(format, args...)))
}

// emptyTime is for how long nobody must have been inside. Another process may let one in
// until it knows of the pause; it checks ten times a second.
const emptyTime = 500 * time.Millisecond

// awaitEmpty returns when nobody is inside the queues that were paused, and says so.
func (r *run) awaitEmpty() error {
	for empty := time.Now(); time.Since(empty) < emptyTime; time.Sleep(emptyTime / 10) {
		queues, err := r.queues()
		switch {
		case err != nil:
			return fmt.Errorf("waiting until nobody is inside %s: %w; the pause goes on", r.prefix, err)
		case len(queues) == 0 || slices.ContainsFunc(queues, func(q queueview.Queue) bool { return q.PausedUntil == nil }):
			return &failure{fmt.Errorf("waiting until nobody is inside %s: the pause has ended", r.prefix), exitPauseEnded}
		case slices.ContainsFunc(queues, func(q queueview.Queue) bool { return q.Inside > 0 }):
			empty = time.Now()
		}
	}
	r.say("nobody is inside")
	return nil
}
