package commands

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// column is one column of the table of a queue. A cell of "" is unknown.
type column struct {
	title string
	cell  func(t serializer.TicketState, now time.Time) string
}

// columns are those behind the place. One that is unknown for all tickets is
// left out.
var columns = []column{
	{"STATE", func(t serializer.TicketState, _ time.Time) string { return t.State }},
	{"TOKEN", func(t serializer.TicketState, _ time.Time) string { return t.Token }},
	{"WAIT", waitText},
	{"HOLD", holdText},
	{"CLIENT", func(t serializer.TicketState, _ time.Time) string { return queueapi.ClientText(t) }},
	{"REQUEST", func(t serializer.TicketState, _ time.Time) string { return queueapi.RequestText(t.Request) }},
	{"TXID", func(t serializer.TicketState, _ time.Time) string { return queueapi.TXIDText(t.Request) }},
	{"OWNER", func(t serializer.TicketState, _ time.Time) string { return command.Printable(t.Owner) }},
	{"ALIVE", func(t serializer.TicketState, _ time.Time) string { return aliveText(t.Alive) }},
}

// writeQueueTables writes queues for people: a line and a table each.
func writeQueueTables(w io.Writer, queues []serializer.QueueState, now time.Time) {
	for i, q := range queues {
		if i > 0 {
			fmt.Fprintln(w)
		}
		limit := ""
		if q.Limit > 0 {
			limit = fmt.Sprintf(" of %d", q.Limit)
		}
		fmt.Fprintf(w, "%s  in %s  inside %d%s, waiting %d%s\n", command.Printable(q.Prefix), command.Printable(q.Path), q.Inside, limit, q.Waiting, pausedText(q))
		if len(q.Tickets) > 0 {
			writeTable(w, q.Tickets, now)
		}
	}
}

func pausedText(q serializer.QueueState) string {
	if q.PausedUntil == nil {
		return ""
	}
	return ", paused " + queueapi.UntilText(*q.PausedUntil)
}

func writeTable(w io.Writer, tickets []serializer.TicketState, now time.Time) {
	known := slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(tickets, func(t serializer.TicketState) bool { return c.cell(t, now) != "" })
	})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := []string{"PLACE"}
	for _, c := range known {
		row = append(row, c.title)
	}
	fmt.Fprintln(table, strings.Join(row, "\t"))
	for place, t := range tickets {
		row = append(row[:0], strconv.Itoa(place+1))
		for _, c := range known {
			row = append(row, cmp.Or(c.cell(t, now), "-"))
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush()
}

// waitText is how long a ticket waits, or has waited.
func waitText(t serializer.TicketState, now time.Time) string {
	switch {
	case t.State == serializer.StateWaiting:
		return ageText(now.Sub(t.Arrived))
	case t.Entered.IsZero():
		return ""
	}
	return ageText(t.Entered.Sub(t.Arrived))
}

// holdText is for how long a ticket has been inside. Of one of another process, only the
// arrival is known, and so the most it can be.
func holdText(t serializer.TicketState, now time.Time) string {
	switch {
	case t.State == serializer.StateWaiting:
		return ""
	case t.Entered.IsZero():
		return "<" + ageText(now.Sub(t.Arrived))
	}
	return ageText(now.Sub(t.Entered))
}

// ageText is a duration for people.
func ageText(d time.Duration) string {
	switch {
	case d < 0:
		return "0s" // the queue's clock runs ahead of the system's
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 24*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

func aliveText(alive *bool) string {
	switch {
	case alive == nil:
		return "?"
	case *alive:
		return "yes"
	}
	return "no"
}
