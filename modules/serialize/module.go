// Package serialize connects the queues of package serializer to Caddy: the handler
// serialize, its engines, the status page, the admin API, commands and metrics.
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
