package serialize

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// mapPlaceholders makes the placeholders of a request answer for its innermost visit, which
// may be a later one than v, the first.
func mapPlaceholders(v *visit, repl *caddy.Replacer, vars map[string]any) {
	repl.Map(func(key string) (any, bool) {
		if !strings.HasPrefix(key, "http.serialize.") {
			return nil, false
		}
		latest, ok := vars[visitsVar].(*visit)
		if !ok { // the configuration has overwritten the variable
			latest = v
		}
		return latest.innermost().placeholder(key)
	})
}

// innermost is the latest visit of v's request that has not ended, or v itself,
// which is the latest.
func (v *visit) innermost() *visit {
	for inner := v; inner != nil; inner = inner.earlier {
		if !inner.isOver() {
			return inner
		}
	}
	return v
}

func (v *visit) isOver() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state == visitOver
}

func (v *visit) placeholder(key string) (any, bool) {
	if key == "http.serialize.queue" {
		return v.queue, true
	}
	if key == "http.serialize.reason" {
		return "", true // unless it is refused, which overrides this
	}
	if v.turn == nil {
		return nil, false
	}
	switch key {
	case "http.serialize.position":
		return v.turn.Position(), true
	case "http.serialize.wait_ms":
		return newWaitMS(v.waited), true
	case "http.serialize.token":
		return v.token(), true
	}
	return nil, false
}

// describeRefusal sets the placeholders of a refused request.
func describeRefusal(repl *caddy.Replacer, v *visit, refused *serializer.Refused) {
	repl.Set("http.serialize.reason", string(refused.Reason))
	repl.Set("http.serialize.position", refused.Position)
	repl.Set("http.serialize.wait_ms", newWaitMS(v.waited))
}

// waitMS is a wait as a placeholder's value: milliseconds with three decimals. It is a
// number in expressions and in JSON logs. It has Format rather than String, which
// would make it a text in the log.
type waitMS float64

func newWaitMS(d time.Duration) waitMS { return waitMS(float64(d.Microseconds()) / 1000) }

// Format implements [fmt.Formatter].
func (w waitMS) Format(f fmt.State, _ rune) { _, _ = f.Write(w.text()) }

// MarshalJSON implements [encoding/json.Marshaler].
func (w waitMS) MarshalJSON() ([]byte, error) { return w.text(), nil }

func (w waitMS) text() []byte { return strconv.AppendFloat(nil, float64(w), 'f', 3, 64) }
