// Package command contains what the plugin's commands share.
package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Group adds subcommands to a command. Without it, Cobra would take an unknown subcommand
// for an argument, print the help, and report success.
func Group(cmd *cobra.Command, below ...*cobra.Command) {
	cmd.AddCommand(below...)
	cmd.RunE = helpOrError
}

func helpOrError(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	names := make([]string, 0, len(cmd.Commands()))
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return fmt.Errorf("unknown command %q; expected %s", args[0], OrList(names))
}

// OrList joins words for an error: "a, b or c".
func OrList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
