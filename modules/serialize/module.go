// Package serialize connects the queues of package serializer to Caddy: the handler
// serialize, its engines, the status page, the admin API, commands and metrics.
//
// A method whose name ends in Locked needs the lock of its type, or of the table that its
// type is in. No lock is held while a turn is taken or left, a log entry is written, or a
// client is waited for. At most two are held together, in this order:
//
//   - the lock of a visit, then that of the writer of its response;
//   - the lock of the table of kept tickets, or of the stats, then that of a list of ages.
package serialize

import (
	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

func init() {
	caddy.RegisterModule(Handler{})
	caddy.RegisterModule(FileEngine{})
	caddy.RegisterModule(MemoryEngine{})
	caddy.RegisterModule(Status{})
	caddy.RegisterModule(AdminAPI{})
	caddycmd.RegisterCommand(serializeCommands)
}
