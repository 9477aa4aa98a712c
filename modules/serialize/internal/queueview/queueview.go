// Package queueview is what the admin API, its client and the status page have in common: a
// queue as they list it, how people name it, and its texts for people.
package queueview

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Path is the path of the admin API.
const Path = "/serialize/queues"

// DefaultPause is how long a pause lasts.
const DefaultPause = "10m"

// Queue is a queue, or what keeps it from being read.
type Queue struct {
	serializer.QueueState

	// Why the queue could not be read. Its numbers then say nothing.
	Error string `json:"error,omitempty"`

	QueueLength int  `json:"-"` // how many may wait; 0 is no limit
	DryRun      bool `json:"-"`
}

// Eviction is the answer to the eviction of a ticket: the ticket as it was, and what became
// of it.
type Eviction struct {
	serializer.TicketState
	Result string `json:"result"`
}

// Paused says of a queue, or of all whose names begin alike, whether it is paused.
type Paused struct {
	Path        string     `json:"path"`
	Prefix      string     `json:"prefix"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
}

// Placeholder matches a placeholder in a prefix.
var Placeholder = regexp.MustCompile(`\{[^{}]*\}`)

var escaped = regexp.MustCompile(`%([~!]|[0-9A-F]{2})`)

// Name is the name of a queue, which may end in *, as people write it: a name from a list
// stays as it is, and a prefix is escaped.
func Name(text string) string {
	name := serializer.QueueName
	start, all := strings.CutSuffix(text, "*")
	if all {
		name = serializer.QueueNames
	}
	if plain := escaped.ReplaceAllString(text, "_"); name(strings.TrimSuffix(plain, "*")) != plain {
		return name(start)
	}
	return text
}

// FastCGIText says what a revocation cannot do, and what helps.
const FastCGIText = "PHP behind FastCGI goes on in spite of it; read_timeout in its transport bounds that"

// UntilText is the end of a pause for people.
func UntilText(until time.Time) string {
	if !until.Before(serializer.Forever) {
		return "until it is resumed"
	}
	return "until " + until.Local().Format(time.DateTime+" MST") // the zone is the server's, on the page and in a container
}

// Age is a duration for people.
func Age(d time.Duration) string {
	precision := time.Second
	if d < time.Minute {
		precision = 100 * time.Millisecond
	}
	text := max(d, 0).Round(precision).String() // the queue's clock may run ahead of the system's
	return strings.Replace(text, "m0s", "m", 1)
}

// Cut shortens a text that a client chose to at most as many characters as most says.
func Cut(text string, most int) string {
	if characters := []rune(text); len(characters) > most {
		return string(characters[:most-1]) + "…"
	}
	return text
}

// Row is a ticket as lists show it to people. What is not known is empty.
type Row struct {
	serializer.TicketState
	Place string // among those that wait; 1 is the next
	Wait  string // how long it has waited, or had before it entered
	Hold  string // how long it has been inside; for one of another process, at most
	About string // the method and the address of its request
	From  string // the client; the peer of the connection may be a proxy
	TXID  string // the request's name in logs
	Notes string // its slot, and what is known of the end of its turn
}

// maxCell is how many characters of a request are shown. All rows of a table are as wide as
// the widest.
const (
	maxCell = 80
	minHost = 12
)

// Rows are the tickets of a queue, in order.
func Rows(now time.Time, tickets []serializer.TicketState) []Row {
	rows, waiting := make([]Row, len(tickets)), 0
	for i, t := range tickets {
		row, age := Row{TicketState: t, From: t.Client}, Age(now.Sub(t.Since))
		switch {
		case t.State == serializer.StateWaiting:
			waiting++
			row.Place, row.Wait = strconv.Itoa(waiting), age
		case t.Entered.IsZero():
			row.Hold = "<" + age
		default:
			row.Wait, row.Hold = Age(t.Entered.Sub(t.Arrived)), age
		}
		if r := t.Request; r != nil {
			row.About, row.From, row.TXID = about(r), cmp.Or(r.ClientIP, t.Client), r.TXID
		}
		if t.Slot != "" {
			row.Notes = ", slot " + Cut(t.Slot, maxCell)
		}
		switch {
		case t.Requests > 0:
			row.Notes += fmt.Sprintf(", a visit (requests: %d), the latest %s ago", t.Requests, Age(now.Sub(t.LastRequest)))
		case !t.HeldUntil.IsZero():
			row.Notes += ", held for " + Age(t.HeldUntil.Sub(now)) + " more"
		case !t.Revoked.IsZero():
			row.Notes += ", revoked " + Age(now.Sub(t.Revoked)) + " ago"
		}
		rows[i] = row
	}
	return rows
}

// about is the method and the address of a request, or its label. Of a long address, the host is cut first:
// the path says more.
func about(r *serializer.Request) string {
	if r.Label != "" {
		return Cut(r.Label, maxCell)
	}
	method := Cut(r.Method, 16) + " "
	path := Cut(r.Path, maxCell-len(method)-minHost)
	return method + Cut(r.Host, maxCell-utf8.RuneCountInString(method+path)) + path
}

// StateText is the ticket's state, since when, and the notes.
func (r Row) StateText() string { return r.State + " for " + cmp.Or(r.Hold, r.Wait) + r.Notes }

// Known joins the texts that are not empty.
func Known(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), " · ")
}
