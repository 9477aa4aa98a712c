// Package commands holds the commands "caddy serialize ...".
package commands

import (
	"context"
	"os"
	"os/signal"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/orderly-http/caddy-orderly/internal/command"
)

// Exit codes of the commands, besides 0 and 1.
const (
	exitNoTicket   = 2
	exitInside     = 3 // and not confirmed
	exitNotObeyed  = 4
	exitPauseEnded = 5 // before the command was done
)

// Add adds the commands to "caddy serialize".
func Add(cmd *cobra.Command) {
	command.Group(cmd, queuesCommand(), evictCommand(), pauseCommand(), resumeCommand())
}

// isTerminal reports whether somebody sits at the other end of a file.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// exiting makes Caddy's main function end with the code that run returns. The context
// of run ends when the command is interrupted.
func exiting(run func(context.Context, *cobra.Command, []string) (int, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
		defer stop()
		return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return run(ctx, cmd, args) })(cmd, args)
	}
}
