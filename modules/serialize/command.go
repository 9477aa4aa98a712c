package serialize

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/commands"
)

// serializeCommands are the commands "caddy serialize ...".
var serializeCommands = caddycmd.Command{
	Name:  "serialize",
	Usage: "queues|evict|pause|resume",
	Short: "Lists, evicts from, pauses and resumes queues of requests",
	Long: `
Lists queues, evicts tickets from them, pauses and resumes them.

By default, the commands ask a running Caddy through its admin API, and find all
of its queues, with any engine and in any directory. If no Caddy answers, they
say so and read the default directory. With --path, they read that directory
instead; it does not matter how many servers run, if any.`,
	CobraFunc: commands.Add,
}
