package commands

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// writeTables writes queues for people: a line each, and its tickets. What is not known is a
// dash.
func writeTables(w io.Writer, queues []queueapi.Queue, now time.Time) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, q := range queues {
		if q.Error != "" {
			continue
		}
		if i > 0 {
			fmt.Fprintln(table)
		}
		limit, paused := "", ""
		if q.Limit > 0 {
			limit = fmt.Sprintf(" of %d", q.Limit)
		}
		if q.PausedUntil != nil {
			paused = ", paused " + queueapi.UntilText(*q.PausedUntil)
		}
		fmt.Fprintln(table, command.Printable(fmt.Sprintf("%s  in %s  inside %d%s, waiting %d%s", q.Prefix, q.Path, q.Inside, limit, q.Waiting, paused)))
		if len(q.Tickets) > 0 {
			fmt.Fprintln(table, "PLACE\tSTATE\tTOKEN\tWAIT\tHOLD\tCLIENT\tREQUEST\tTXID\tOWNER\tALIVE")
		}
		for _, t := range queueapi.Rows(now, q.Tickets...) {
			wait, hold := times(t)
			cells := []string{t.Place, t.State + t.Revoked, t.Token, wait, hold, t.From, t.About, t.TXID, t.Owner, aliveText(t.Alive)}
			for i, cell := range cells {
				cells[i] = command.Printable(cmp.Or(cell, "-"))
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		}
	}
	_ = table.Flush() // as the others, an error is that of the terminal
}

// times are how long a ticket has waited, and has been inside. Of a holder of another
// process, only the arrival is known, and so the most it can be.
func times(t queueapi.Row) (wait, hold string) {
	age := queueapi.Age(t.Age)
	switch {
	case t.TicketState.State == serializer.StateWaiting:
		return age, ""
	case t.Entered.IsZero():
		return "", "<" + age
	}
	return queueapi.Age(t.Entered.Sub(t.Arrived)), age
}

// aliveText says whether a ticket's owner is alive, if that is known.
func aliveText(alive *bool) string {
	if alive == nil {
		return ""
	}
	return map[bool]string{true: "yes", false: "no"}[*alive]
}
