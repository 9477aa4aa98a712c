package directive

import (
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func wantDuration(least time.Duration) string {
	return fmt.Sprintf("a duration of %s or more with a unit, such as 60s or 5m", least)
}

// DurationOf parses the text of a duration of at least least. name is that of the setting.
func DurationOf(d *caddyfile.Dispenser, name, text string, least time.Duration) (caddy.Duration, error) {
	duration, err := caddy.ParseDuration(text)
	if err != nil {
		return 0, d.Errf("%s %q: expected %s", name, text, wantDuration(least))
	}
	return caddy.Duration(duration), In(d, CheckDuration(name, duration, least))
}

// Longest is the longest duration that somebody can mean.
const Longest = 365 * 24 * time.Hour

// CheckDuration returns an error for a duration below least, and for one that nobody can
// mean: over a year, or, since a number in JSON is nanoseconds, below a millisecond.
func CheckDuration(name string, d, least time.Duration) error {
	if d > 0 && d < time.Millisecond {
		expected := "1ms or more, or 0"
		if least > 0 {
			expected = least.String() + " or more"
		}
		return fmt.Errorf("%s %s: expected a duration of %s; in JSON, a number is nanoseconds: write a text such as \"30s\"", name, d, expected)
	}
	if d > Longest {
		return fmt.Errorf("%s %s: expected a duration of %s or less, such as 15s", name, d, Longest)
	}
	if d < least {
		return fmt.Errorf("%s %s: expected a duration of %s or more, such as 60s", name, d, least)
	}
	return nil
}
