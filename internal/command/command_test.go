package command_test

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/orderly-http/caddy-orderly/internal/command"
)

// Bug: a word that is no command was answered with the help and exit code 0.
func TestGroupRefusesUnknownCommands(t *testing.T) {
	root := &cobra.Command{Use: "caddy", SilenceUsage: true, SilenceErrors: true}
	group := &cobra.Command{Use: "group"}
	root.AddCommand(group)
	command.Group(group, &cobra.Command{Use: "one", RunE: func(*cobra.Command, []string) error { return nil }})
	root.SetArgs([]string{"group", "two"})
	err := root.Execute()
	if want := `unknown command "two" for "caddy group"`; err == nil || err.Error() != want {
		t.Errorf("error is %v; expected %s", err, want)
	}
}
