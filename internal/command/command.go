// Package command contains what the plugin's commands share.
package command

import (
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// Group adds subcommands to a command. By itself, Cobra would take an unknown subcommand
// for an argument, print the help, and report success.
func Group(cmd *cobra.Command, below ...*cobra.Command) {
	cmd.AddCommand(below...)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// Printable returns text from a file's name or content without characters that control a
// terminal.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}
