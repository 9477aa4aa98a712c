// Package queueapi is what the admin API, its client and the status page have in common: a
// queue as they list it, how people name it, and its texts for people.
package queueapi

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Path is the path of the admin API.
const Path = "/serialize/queues"

// The actions of the admin API and of the status page on a queue.
const (
	Evict  = "evict"
	Pause  = "pause"
	Resume = "resume"
)

// Queue is a queue, or what keeps it from being read.
type Queue struct {
	serializer.QueueState

	// Why the queue could not be read. Its numbers then say nothing.
	Error string `json:"error,omitempty"`
}

// Eviction is the answer to the eviction of a ticket: the ticket as it was, and what became
// of it.
type Eviction struct {
	serializer.TicketState
	Result string `json:"result"`
}

// Matches reports whether a name stands for a queue. One that ends in * stands for all
// queues whose names begin so.
func Matches(name, queue string) bool {
	start, all := strings.CutSuffix(name, "*")
	return queue == name || all && strings.HasPrefix(queue, start)
}

// Placeholder matches a placeholder in a prefix.
var Placeholder = regexp.MustCompile(`\{[^{}]*\}`)

var escaped = regexp.MustCompile(`%(~|[0-9A-F]{2})`)

// Name is the name of a queue, which may end in *, as people write it: a name from a list
// stays as it is, and a prefix is escaped.
func Name(text string) string {
	start, all := strings.CutSuffix(text, "*")
	if plain := escaped.ReplaceAllString(start, "_"); serializer.QueueName(plain) != plain {
		start = serializer.QueueName(start)
	}
	if all {
		start += "*"
	}
	return start
}

// FastCGIText says what a revocation cannot do, and what helps.
const FastCGIText = "PHP behind FastCGI goes on in spite of it; read_timeout in its transport bounds that"

// UntilText is the end of a pause for people.
func UntilText(until time.Time) string {
	if !until.Before(serializer.Forever) {
		return "until it is resumed"
	}
	return "until " + until.Local().Format(time.DateTime)
}

// Age is a duration for people.
func Age(d time.Duration) string {
	switch {
	case d < time.Millisecond: // or the queue's clock runs ahead of the system's
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 24*time.Hour:
		text, whole := strings.CutSuffix(d.Round(time.Second).String(), "m0s")
		if whole {
			text += "m"
		}
		return text
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// StateText is the state of a ticket, and when its turn was revoked.
func StateText(t serializer.TicketState, now time.Time) string {
	if t.Revoked.IsZero() {
		return t.State
	}
	return t.State + ", revoked " + Age(now.Sub(t.Revoked)) + " ago"
}

// Cut cuts a text that a client chose after so many characters.
func Cut(text string, most int) string {
	n, end := 0, 0
	for i := range text {
		if n++; n == most {
			end = i
		}
	}
	if n <= most {
		return text
	}
	return text[:end] + "…"
}

// maxCell is how many characters of a request are shown. All rows of a table are as wide as
// the widest.
const maxCell = 80

// RequestText is the method and the address of a ticket's request; "" if it is not known.
func RequestText(t serializer.TicketState) string {
	if t.Request == nil {
		return ""
	}
	return Cut(t.Request.Method+" "+t.Request.Host+t.Request.Path, maxCell)
}

// ClientText is the client's address: that of the request where it is known, for the peer
// may be a proxy.
func ClientText(t serializer.TicketState) string {
	if t.Request != nil && t.Request.ClientIP != "" {
		return command.Printable(t.Request.ClientIP)
	}
	return command.Printable(t.Client)
}

// TXIDText is the request's name in logs; "" if it has none.
func TXIDText(t serializer.TicketState) string {
	if t.Request == nil {
		return ""
	}
	return command.Printable(t.Request.TXID)
}

// RequestOf names the request of a ticket, and its client.
func RequestOf(t serializer.TicketState) string {
	return cmp.Or(RequestText(t), "a request") + " of " + cmp.Or(ClientText(t), "an unknown client")
}
