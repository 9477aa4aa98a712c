package serialize

import (
	"context"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// statusQueues are the rows of the status page: the listed queues, and one for each prefix
// that several queues share. What is counted for a prefix cannot be told apart by queues, so
// only the row of a prefix's single queue has it.
func statusQueues(ctx context.Context, now time.Time) (rows []*statuspage.Queue) {
	byPrefix := make(map[string][]*statuspage.Queue)
	for _, q := range allQueues(ctx) {
		row := &statuspage.Queue{
			Queue: q.Queue, QueueLength: q.settings.queueLength, DryRun: q.settings.dryRun, Control: q.Path + "/" + q.Prefix,
		}
		rows = append(rows, row)
		byPrefix[q.Prefix] = append(byPrefix[q.Prefix], row)
	}
	for _, s := range registered.allStats() {
		if !s.isUsed() {
			continue
		}
		row := s.sumRow(now)
		if same := byPrefix[s.pauseName()]; !s.many() && len(same) == 1 {
			row = same[0]
		} else {
			rows = append(rows, row)
		}
		row.Outcomes = s.Outcomes()
	}
	return rows
}

// sumRow is the sum of a prefix's queues, as this process counts them. It can be paused
// unless it is used in several directories, or begins with a placeholder: then its pause
// would be that of all queues.
func (s *prefixStats) sumRow(now time.Time) *statuspage.Queue {
	u := s.usage()
	row := &statuspage.Queue{
		Sum: true, QueueLength: u.queueLength, DryRun: u.dryRun, OldestWaiting: s.Waits.Oldest(now),
		Queue: queueapi.Queue{QueueState: serializer.QueueState{
			Path: strings.Join(u.paths, ", "), Prefix: s.prefix, Limit: u.limit,
			Inside: int(s.Inside.Load()), Waiting: int(s.Waiting.Load()), Tickets: []serializer.TicketState{},
		}},
	}
	if name := s.pauseName(); len(u.paths) == 1 && name != "*" {
		row.Control = u.paths[0] + "/" + name
	}
	return row
}
