package telemetry

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Request is what others learn of a request in a queue.
type Request struct {
	agelist.Entry // its queue; since when it has waited, or has been inside

	Described serializer.Request // without its txid
	ID        requestid.ID       // makes the txid; nil without unique_ids

	Token    uint64 // of its ticket; 0 if it has no turn
	Position int    // how many were ahead on arrival
	Waited   time.Duration
	Reason   serializer.Reason // of its refusal, or ""

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

func (q *Request) token() string { return strconv.FormatUint(q.Token, 10) }

// txid names the request in a log entry. It makes the txid, so only an entry that is
// written may have it.
func (q *Request) txid() zap.Field {
	if q.ID == nil {
		return zap.Skip()
	}
	return zap.String("txid", q.ID.TXID())
}

// PlaceholderPrefix begins the names of the placeholders.
const PlaceholderPrefix = "http.serialize."

// Placeholder is the value of a placeholder.
func (q *Request) Placeholder(name string) (any, bool) {
	name = strings.TrimPrefix(name, PlaceholderPrefix)
	decided := q.Token != 0 || q.Reason != ""
	switch {
	case name == "queue":
		return q.Queue, true
	case name == "reason":
		return string(q.Reason), true
	case name == "position" && decided:
		return q.Position, true
	case name == "wait_ms" && decided:
		return waitMS(q.Waited), true
	case name == "token" && q.Token != 0:
		return q.token(), true
	}
	return nil, false
}

// milliseconds is a wait as the value of a placeholder: milliseconds with three decimals. It is a
// number in expressions and in JSON logs. It has Format rather than String, which would
// make it a text in the log.
type milliseconds float64

func waitMS(d time.Duration) milliseconds { return milliseconds(float64(d.Microseconds()) / 1000) }

// Format implements [fmt.Formatter].
func (ms milliseconds) Format(f fmt.State, _ rune) { _, _ = f.Write(ms.text()) }

// MarshalJSON implements [encoding/json.Marshaler].
func (ms milliseconds) MarshalJSON() ([]byte, error) { return ms.text(), nil }

func (ms milliseconds) text() []byte { return strconv.AppendFloat(nil, float64(ms), 'f', 3, 64) }
