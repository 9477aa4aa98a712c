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

The commands ask a running Caddy through its admin API, and find all of its
queues, with any engine and in any directory. --path chooses among directories in
which a prefix is used.`,
	CobraFunc: commands.Add,
}
