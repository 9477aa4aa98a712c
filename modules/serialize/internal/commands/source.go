package commands

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// sourceFlags are the flags that say where to find queues.
type sourceFlags struct{ path, address, config, adapter string }

func (f *sourceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.path, "path", "", "Only the queues in this directory")
	flags.StringVar(&f.address, "address", "", "Address of the admin API of a running Caddy")
	flags.StringVarP(&f.config, "config", "c", "", "Configuration file with the address of the admin API")
	flags.StringVarP(&f.adapter, "adapter", "a", "", "Name of the config adapter of --config")
	_ = cmd.MarkFlagDirname("path")
	_ = cmd.MarkFlagFilename("config")
}

func (f *sourceFlags) addPrefix(cmd *cobra.Command, prefix *string, usage string) {
	cmd.Flags().StringVar(prefix, "prefix", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("prefix", f.completePrefix)
}

// open finds the running Caddy.
func (f *sourceFlags) open() (*adminSource, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(f.address, nil, f.config, f.adapter)
	if err != nil {
		return nil, fmt.Errorf("finding the address of the admin API: %w", err)
	}
	source := &adminSource{address: address}
	if f.path != "" {
		source.path = filepath.Clean(f.path)
	}
	return source, nil
}

// prefixMatches compares a prefix as people write it, perhaps with a * at the end, with a
// queue's name.
func prefixMatches(text, queue string) bool {
	return queueapi.Matches(text, queue) || queueapi.Matches(queueapi.Escape(text), queue)
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
	source, err := f.open()
	if err != nil {
		return nil
	}
	queues, _ := source.queues(cmd.Context())
	return queues
}
