package statuspage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/webpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The server renders the whole page for each request. Its script only replaces the old
// page by the new one, so the page is the same with and without JavaScript.
var (
	//go:embed status.html
	statusHTML string
	//go:embed status.css
	statusCSS string
	//go:embed status.js
	statusJS string
)

var statusTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("status").Funcs(template.FuncMap{
		"style":   func() template.CSS { return template.CSS(statusCSS) },
		"script":  func() template.JS { return template.JS(statusJS) },
		"span":    Span,
		"ms":      func(milliseconds float64) string { return Span(milliseconds / 1000) },
		"count":   countText,
		"counted": counted,
	}).Parse(statusHTML))
})

// Policy is the page's Content-Security-Policy. It allows just the style
// and script of the page, by their hashes, so nothing that comes with the data
// could ever run. The form is the filter, for those without JavaScript.
var Policy = sync.OnceValue(func() string {
	return "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'" +
		"; style-src " + webpage.SourceHash(statusCSS) + "; script-src " + webpage.SourceHash(statusJS)
})

// shownStatus is the page's data, ready to be shown.
type shownStatus struct {
	Data
	Queues []shownQueue
}

type shownQueue struct {
	*Queue
	Controls bool
	Recent   *recentPlot
	now      time.Time
}

// Render is the page. controls says whether it can evict, pause and resume.
func Render(data Data, controls bool) ([]byte, error) {
	shown := shownStatus{Data: data}
	for _, q := range data.Queues {
		shown.Queues = append(shown.Queues, shownQueue{q, controls, plotOf(q.Recent), data.Time})
	}
	var page bytes.Buffer
	if err := statusTemplate().Execute(&page, shown); err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	return page.Bytes(), nil
}

// ID names the queue within the page.
func (q shownQueue) ID() string {
	sum := sha256.Sum256([]byte(q.Path + "\x00" + q.Prefix))
	return "q" + hex.EncodeToString(sum[:8])
}

// ControlName names the queue for the controls. It is empty for a prefix that is used
// in several directories, each of which has pauses of its own. It is also empty for one
// that begins with a placeholder, whose pause would be that of all queues.
func (q shownQueue) ControlName() string {
	if len(q.Paths) != 1 || q.PauseName == "*" {
		return ""
	}
	return q.Paths[0] + "/" + q.PauseName
}

// Worst is the class of the queue's row.
func (q shownQueue) Worst() string {
	switch {
	case q.level >= badTrouble:
		return "bad"
	case q.level == someTrouble:
		return "warn"
	}
	return ""
}

// More is how many tickets are not shown.
func (q shownQueue) More() int { return max(q.Inside+q.Waiting-len(q.Tickets), 0) }

// Holder describes the first holder, in one line of text.
func (q shownQueue) Holder() string {
	i := slices.IndexFunc(q.Tickets, func(t serializer.TicketState) bool { return t.State == serializer.StateInside })
	if i < 0 {
		return ""
	}
	t := shownTicket{q.Tickets[i], i + 1, q.now}
	parts := []string{t.For(), "", t.Client()}
	if r := t.TicketState.Request; r != nil {
		parts[1] = r.Method + " " + r.Path
	}
	if q.Inside > 1 {
		parts = append(parts, "and "+countText(q.Inside-1)+" more")
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " · ")
}

// Rows are the rows of the tickets' table.
func (q shownQueue) Rows() (tickets []shownTicket) {
	for i, t := range q.Tickets {
		tickets = append(tickets, shownTicket{t, i + 1, q.now})
	}
	return tickets
}

type shownTicket struct {
	serializer.TicketState
	Position int // in the list, from 1
	now      time.Time
}

// For is the age of the wait or of the hold. Of a holder of another process, only its
// arrival is known.
func (t shownTicket) For() string {
	age := Span(max(t.now.Sub(t.Since), 0).Seconds())
	if t.State == serializer.StateInside && t.Entered.IsZero() {
		return "at most " + age
	}
	return age
}

// Request is the method and the address, where this process serves it.
func (t shownTicket) Request() string {
	if t.TicketState.Request == nil {
		return ""
	}
	r := t.TicketState.Request
	return r.Method + " " + r.Host + r.Path
}

// Client is the client's address, or else that of the connection's peer.
func (t shownTicket) Client() string {
	switch {
	case t.TicketState.Request != nil && t.TicketState.Request.ClientIP != "":
		return t.TicketState.Request.ClientIP
	case t.TicketState.Client != "":
		return t.TicketState.Client
	}
	return "unknown client"
}

// Page says what the browser of the ticket does, if it has the waiting page.
func (t shownTicket) Page() string {
	k, ok := t.Requester.(interface{ Browser() string })
	if !ok {
		return ""
	}
	return k.Browser()
}

// TXID is the request's name in logs, if it has one.
func (t shownTicket) TXID() string {
	if t.TicketState.Request == nil {
		return ""
	}
	return t.TicketState.Request.TXID
}

// recentPlot draws what happened lately.
type recentPlot struct {
	*Counts
	Most, Scale float64 // milliseconds
	MostRefused int64
}

// plotOf returns nil where there is nothing to draw.
func plotOf(recent *Counts) *recentPlot {
	if recent == nil {
		return nil
	}
	most := slices.Max(recent.Longest)
	return &recentPlot{recent, most, roundUp(most), slices.Max(recent.Refused)}
}

// MeanBars, LongestBars and RefusedBars are paths in a plot of 120 by 100.
func (p recentPlot) MeanBars() string    { return bars(p.Mean, p.Scale, p.Entered) }
func (p recentPlot) LongestBars() string { return bars(p.Longest, p.Scale, p.Entered) }
func (p recentPlot) RefusedBars() string {
	heights := make([]float64, len(p.Refused))
	for i, n := range p.Refused {
		heights[i] = float64(n)
	}
	return bars(heights, float64(max(p.MostRefused, 1)), p.Refused)
}

// bars draws a bar for each span in which something happened, however low.
func bars(heights []float64, scale float64, happened []int64) string {
	var path strings.Builder
	for i, height := range heights {
		if happened[i] > 0 {
			top := 100 - min(max(100*height/scale, 1), 100)
			fmt.Fprintf(&path, "M%d.1 100V%.1fh.8V100z", i, top)
		}
	}
	return path.String()
}

// roundUp is the next round number of milliseconds, at least 1.
func roundUp(ms float64) float64 {
	for power := 1.0; ; power *= 10 {
		for _, step := range []float64{1, 2, 3, 5} {
			if step*power >= ms {
				return step * power
			}
		}
	}
}

// Span is a time for people.
func Span(seconds float64) string {
	text := func(value float64, unit string) string {
		digits := 0
		if value < 10 {
			digits = 1
		}
		return strings.TrimSuffix(strconv.FormatFloat(value, 'f', digits, 64), ".0") + " " + unit
	}
	switch {
	case seconds < .001:
		return "0 ms"
	case seconds < .9995:
		return strconv.FormatFloat(seconds*1000, 'f', 0, 64) + " ms"
	case seconds < 59.5:
		return text(seconds, "s")
	case seconds < 59.5*60:
		return text(seconds/60, "min")
	case seconds < 47.5*3600:
		return text(seconds/3600, "h")
	}
	return text(seconds/86_400, "days")
}

// countText shortens numbers that would not fit.
func countText(number any) string {
	n, _ := strconv.ParseInt(fmt.Sprint(number), 10, 64)
	switch {
	case n < 100_000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return strconv.FormatInt(n/1000, 10) + "k"
	}
	return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M"
}

func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return countText(n) + " " + more
}

// DryRunText sums up a dry run.
func (q *Queue) DryRunText() string {
	all := q.WouldWait + q.WouldEnter
	return fmt.Sprintf("Dry run: nobody waits. %s of %s would have waited.", countText(q.WouldWait), counted(int(all), "request", "requests"))
}
