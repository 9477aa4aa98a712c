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
	s.HoldAtLeast = 0
	s.HoldTimeout, s.Buffer, s.ResponseBuffer, s.WaitingPage = new(caddy.Duration), new(directive.Off), new(directive.Size), nil
	s.KeepAlive = nil
}

// recordDryRun records what a request has met in a dry run, and returns the outcome. It has
// entered at once, as a reader that nobody keeps out.
func (p *passage) recordDryRun() (outcome string) {
	rule, shared := p.handler.engineRules()
	readers := 0
	if p.about.Reader {
		rule, readers = shared, p.readersInside()
	}
	return p.handler.report.DryRun(&p.about, rule, readers)
}

// readersInside counts the readers ahead. It is 0 if one of those ahead is no reader, or is of
// another process, of which that is not known.
func (p *passage) readersInside() (readers int) {
	for _, state := range p.engine.Known(func(queue string) bool { return queue == p.about.Queue }) {
		for _, t := range state.Tickets {
			other, ok := t.Requester.(*passage)
			switch {
			case ok && other == p:
				return readers
			case !ok || !other.about.Reader:
				return 0
			}
			readers++
		}
	}
	return readers
}
