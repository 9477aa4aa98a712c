// Package command contains what the plugin's commands share.
package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

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

// WriteJSON writes a value as JSON, in which nothing controls a terminal: package json leaves
// DEL, the C1 controls and the marks of bidirectional text in strings as they are.
func WriteJSON(w io.Writer, indent string, value any) error {
	var plain, out bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetIndent("", indent)
	if err := enc.Encode(value); err != nil {
		return err
	}
	for _, c := range plain.String() {
		switch {
		case c < 0x7f || unicode.IsPrint(c):
			out.WriteRune(c)
		default:
			for _, unit := range utf16.AppendRune(nil, c) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
		}
	}
	_, err := out.WriteTo(w)
	return err
}
