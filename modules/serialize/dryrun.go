package serialize

import (
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// dryRunPatience is how long a dry run waits for its ticket, and for nothing else.
const dryRunPatience = 250 * time.Millisecond

// openDoors takes back the settings that could delay, refuse or cancel a request, for a dry
// run. Requests still take tickets, so that all processes and all lists see them.
func (s *Handler) openDoors() {
	s.rule = serializer.Rule{Shared: true}
	s.shared, s.limit = s.rule, s.rule.Capacity()
	s.Timeout, s.TimeoutFrom = new(caddy.Duration(dryRunPatience)), ""
	s.QueueLength, s.WhenFull, s.OnDisconnect = 0, dropNewest, onDisconnectCancel
	s.HoldTimeout, s.HoldAtLeast = new(caddy.Duration), nil
	s.Buffer, s.ResponseBuffer, s.WaitingPage = new(directive.Off), new(directive.Size), nil
	s.KeepAlive = nil
}
