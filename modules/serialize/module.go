// Package serialize connects the queues of package serializer to Caddy: the handler
// serialize, its engines, the status page, the admin API, commands and metrics. A request's
// way is in serve.go, from top to bottom.
//
// A method whose name ends in Locked needs the lock of its type. No lock is held while a
// turn is taken or left, or a client is waited for. The lock of an opening comes before that of a
// ticket of the waiting page, and both come before that of an engine.
package serialize

import (
	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/commands"
)

func init() {
	caddy.RegisterModule(Handler{})
	caddy.RegisterModule(Status{})
	caddy.RegisterModule(AdminAPI{})
	caddycmd.RegisterCommand(serializeCommands)
}

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
