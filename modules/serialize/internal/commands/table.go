package commands

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
)

// writeTables writes queues for people: a line each, and its tickets. What is not known is a
// dash.
func writeTables(w io.Writer, queues []queueview.Queue, now time.Time) {
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
			paused = ", paused " + queueview.UntilText(*q.PausedUntil)
		}
		fmt.Fprintln(table, command.Printable(fmt.Sprintf("%s  in %s  inside %d%s, waiting %d%s", q.Prefix, q.Path, q.Inside, limit, q.Waiting, paused)))
		if len(q.Tickets) > 0 {
			fmt.Fprintln(table, "PLACE\tSTATE\tTOKEN\tWAIT\tHOLD\tCLIENT\tREQUEST\tTXID\tOWNER\tALIVE")
		}
		for _, t := range queueview.Rows(now, q.Tickets) {
			alive := "?"
			if t.Alive != nil {
				alive = map[bool]string{true: "yes", false: "no"}[*t.Alive]
			}
			cells := []string{t.Place, t.State + t.Notes, t.Token, t.Wait, t.Hold, t.From, t.About, t.TXID, t.Owner, alive}
			for i, cell := range cells {
				cells[i] = command.Printable(cmp.Or(cell, "-"))
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		}
	}
	_ = table.Flush() // as the others, an error is that of the terminal
}
