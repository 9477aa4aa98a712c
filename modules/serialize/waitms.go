package serialize

import (
	"fmt"
	"strconv"
	"time"
)

// waitMS is a wait as a placeholder's value: milliseconds with three decimals. It is a
// number in expressions and in JSON logs. It has Format rather than String, which
// would make it a text in the log.
type waitMS float64

func newWaitMS(d time.Duration) waitMS { return waitMS(inMilliseconds(int64(d))) }

// Format implements [fmt.Formatter].
func (w waitMS) Format(f fmt.State, _ rune) { _, _ = f.Write(w.text()) }

// MarshalJSON implements [encoding/json.Marshaler].
func (w waitMS) MarshalJSON() ([]byte, error) { return w.text(), nil }

func (w waitMS) text() []byte { return strconv.AppendFloat(nil, float64(w), 'f', 3, 64) }
