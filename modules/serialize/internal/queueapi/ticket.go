package queueapi

import (
	"cmp"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// RequestOf names the request of a ticket, and its client.
func RequestOf(t serializer.TicketState) string {
	client := cmp.Or(ClientText(t), "an unknown client")
	if t.Request == nil {
		return "a request of " + client
	}
	return RequestText(t.Request) + " of " + client
}

// ClientText is the client's address: that of the request where it is known,
// for the peer may be a proxy.
func ClientText(t serializer.TicketState) string {
	if t.Request != nil && t.Request.ClientIP != "" {
		return command.Printable(t.Request.ClientIP)
	}
	return command.Printable(t.Client)
}

// RequestText is the method and the address of a request.
func RequestText(r *serializer.Request) string {
	if r == nil {
		return ""
	}
	return shortened(command.Printable(r.Method + " " + r.Host + r.Path))
}

// maxCell is how many characters of a cell are shown that a client chose. All
// rows of a table are as wide as the widest.
const maxCell = 80

func shortened(text string) string {
	runes := []rune(text)
	if len(runes) <= maxCell {
		return text
	}
	return string(runes[:maxCell-1]) + "…"
}

// TXIDText is the request's name in logs, if it has one.
func TXIDText(r *serializer.Request) string {
	if r == nil {
		return ""
	}
	return shortened(command.Printable(r.TXID))
}
