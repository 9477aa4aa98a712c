package commands

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
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
		waiting := 0
		for i, t := range q.Tickets {
			if i == 0 {
				fmt.Fprintln(table, "PLACE\tSTATE\tTOKEN\tWAIT\tHOLD\tCLIENT\tREQUEST\tTXID\tOWNER\tALIVE")
			}
			place := ""
			if t.State == serializer.StateWaiting {
				waiting++
				place = strconv.Itoa(waiting)
			}
			wait, hold := times(t, now)
			cells := []string{
				place, queueapi.StateText(t, now), t.Token, wait, hold,
				queueapi.ClientText(t), queueapi.RequestText(t), queueapi.TXIDText(t), t.Owner, aliveText(t),
			}
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
func times(t serializer.TicketState, now time.Time) (wait, hold string) {
	age := now.Sub(t.Arrived)
	switch {
	case t.State == serializer.StateWaiting:
		return queueapi.Age(age), ""
	case t.Entered.IsZero():
		return "", "<" + queueapi.Age(age)
	}
	return queueapi.Age(t.Entered.Sub(t.Arrived)), queueapi.Age(now.Sub(t.Entered))
}

// aliveText says whether a ticket's owner is alive. An owner that has described the request
// is, whatever its engine knows.
func aliveText(t serializer.TicketState) string {
	switch {
	case t.Alive == nil && t.Request == nil:
		return "?"
	case t.Alive == nil || *t.Alive:
		return "yes"
	}
	return "no"
}
