package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// queueSource is where the commands find queues.
type queueSource interface {
	// String names the source for people.
	String() string

	// queues lists all queues.
	queues(ctx context.Context) ([]serializer.QueueState, error)

	// evict takes a ticket out of the queue of a prefix, and waits until it is
	// gone or ctx is done. A ticket that is inside is left alone, with
	// [serializer.ErrInside], unless inside says so.
	evict(ctx context.Context, prefix string, token uint64, inside bool) (serializer.Evicted, error)

	// pause pauses the queues of a prefix or resumes them, as action says. length
	// is the text of a duration. The error is queueapi.ErrNoQueue if there are none.
	pause(ctx context.Context, prefix, action, length string) ([]serializer.QueueState, error)
}

// sourceFlags are the flags that say where to find queues.
type sourceFlags struct{ path, address, config, adapter string }

func (f *sourceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.path, "path", "", "Directory of lock files to read, instead of asking a running Caddy")
	flags.StringVar(&f.address, "address", "", "Address of the admin API of a running Caddy")
	flags.StringVarP(&f.config, "config", "c", "", "Configuration file with the address of the admin API")
	flags.StringVarP(&f.adapter, "adapter", "a", "", "Name of the config adapter of --config")
	cmd.MarkFlagsMutuallyExclusive("path", "address")
	cmd.MarkFlagsMutuallyExclusive("path", "config")
	_ = cmd.MarkFlagDirname("path")
	_ = cmd.MarkFlagFilename("config")
}

func (f *sourceFlags) addPrefix(cmd *cobra.Command, prefix *string, usage string) {
	cmd.Flags().StringVar(prefix, "prefix", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("prefix", f.completePrefix)
}

// open finds the source. Remarks about the choice go to notes.
func (f *sourceFlags) open(ctx context.Context, notes io.Writer) (queueSource, error) {
	if f.path != "" {
		return directorySource(f.path), nil
	}
	address, err := caddycmd.DetermineAdminAPIAddress(f.address, nil, f.config, f.adapter)
	if err != nil {
		return nil, fmt.Errorf("finding the address of the admin API: %w", err)
	}
	server := &adminSource{address: address}
	_, err = server.queues(ctx)
	var silent *noAnswerError
	if errors.As(err, &silent) && ctx.Err() == nil {
		fmt.Fprintf(notes, "no Caddy answers at %s (%v); reading the lock files in %s, as this command sees that directory. "+
			"--address names another admin API, --path another directory\n", address, silent.err, os.TempDir())
		return defaultSource{directorySource(os.TempDir()), errors.Is(silent, context.DeadlineExceeded)}, nil
	}
	if isUnread(err) {
		err = nil // the command meets it again
	}
	return server, err
}

// prefixMatches compares a prefix as people write it with a queue's name, in
// which there never is a *.
func prefixMatches(text, queue string) bool {
	if start, ok := strings.CutSuffix(text, "*"); ok {
		return strings.HasPrefix(queue, start)
	}
	return queue == text || queue == serializer.QueueName(text)
}

// completePrefix offers the prefixes of the existing queues to the shell's
// completion.
func (f *sourceFlags) completePrefix(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var prefixes []cobra.Completion
	for _, q := range f.complete(cmd) {
		prefixes = append(prefixes, cobra.CompletionWithDesc(command.Printable(q.Prefix), fmt.Sprintf("inside %d, waiting %d", q.Inside, q.Waiting)))
	}
	return slices.Compact(prefixes), cobra.ShellCompDirectiveNoFileComp
}

// completeToken offers the tickets of the queue with a prefix.
func (f *sourceFlags) completeToken(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var tokens []cobra.Completion
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, q := range f.complete(cmd) {
		if !prefixMatches(cmp.Or(prefix, "*"), q.Prefix) {
			continue
		}
		for _, t := range q.Tickets {
			tokens = append(tokens, cobra.CompletionWithDesc(t.Token, t.State+", "+cmp.Or(queueapi.RequestText(t.Request), t.Client, "unknown client")))
		}
	}
	return tokens, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// complete lists the queues for a completion, which has nobody to show an error
// to.
func (f *sourceFlags) complete(cmd *cobra.Command) []serializer.QueueState {
	source, err := f.open(cmd.Context(), io.Discard)
	if err != nil {
		return nil
	}
	queues, _ := source.queues(cmd.Context())
	return queues
}
