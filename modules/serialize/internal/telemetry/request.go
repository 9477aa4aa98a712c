package telemetry

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Request is what lists, logs and metrics have of a request in a queue.
type Request struct {
	Queue string    // the name of its queue
	Since time.Time // when it began to wait, or has entered

	Described serializer.Request // without its txid
	ID        requestid.ID       // makes the txid; nil without unique_ids

	Token       uint64 // of its ticket; 0 if it has none
	Slot        string // that it has, here or in a queue around, or ""
	Position    int    // how many were ahead on arrival
	Waited      time.Duration
	Reason      serializer.Reason // of its refusal, or ""
	PausedUntil *time.Time        // the end of the pause in which it was refused, or nil
	Opens       time.Time         // when the queue opens, if it was refused because it comes before; else zero

	span trace.Span // of its wait, or nil
}

// Request implements [serializer.Requester]. It reads only what never changes.
func (q *Request) Request() serializer.Request {
	described := q.Described
	if q.ID != nil {
		described.TXID = q.ID.TXID()
	}
	return described
}

// token is empty if the request was refused without a ticket.
func (q *Request) token() string {
	if q.Token == 0 {
		return ""
	}
	return strconv.FormatUint(q.Token, 10)
}

// txid names the request in a log entry. It makes the txid, so only an entry that is
// written may have it.
func (q *Request) txid() zap.Field {
	if q.ID == nil {
		return zap.Skip()
	}
	return zap.String("txid", q.ID.TXID())
}
