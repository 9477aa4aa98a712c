package telemetry

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
	case name == "slot" && (decided || q.Slot != ""):
		return q.Slot, true
	case name == "token" && decided:
		if q.Token == 0 { // it was refused without a ticket
			return nil, true
		}
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
