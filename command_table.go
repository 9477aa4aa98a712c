package orderly

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// writeQueueTables writes queues for people: a line and a table each.
func writeQueueTables(w io.Writer, queues []serializer.QueueState, path string, now time.Time) {
	if len(queues) == 0 {
		fmt.Fprintf(w, "nobody is in a queue in %s\n", path)
		return
	}
	for i, q := range queues {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  in %s  inside %d, waiting %d\n", printable(q.Prefix), printable(q.Path), q.Inside, q.Waiting)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PLACE\tSTATE\tTOKEN\tAGE\tCLIENT\tOWNER\tALIVE")
		for place, t := range q.Tickets {
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", place+1, t.State, t.Token, ageText(now.Sub(t.Since)),
				cmp.Or(t.Client, "-"), printable(t.Owner), aliveText(t.Alive))
		}
		_ = table.Flush()
	}
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
	return "dead"
}

// printable is a text from a file's name or content, without what a terminal
// would obey.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}
