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
	for _, name := range []string{"one", "two", "three"} {
		group.AddCommand(&cobra.Command{Use: name, RunE: func(*cobra.Command, []string) error { return nil }})
	}
	command.Group(group)
	root.SetArgs([]string{"group", "four"})
	err := root.Execute()
	if want := `unknown command "four"; expected one, three or two`; err == nil || err.Error() != want {
		t.Errorf("error is %v; expected %s", err, want)
	}
}

func TestOrList(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := command.OrList(words); got != want {
			t.Errorf("list of %q is %q; expected %q", words, got, want)
		}
	}
}
