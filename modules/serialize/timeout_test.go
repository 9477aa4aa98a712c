package serialize

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// A request's own timeout counts if it is readable, positive and not larger than the handler's,
// of which 0 is none.
func TestTimeoutOfRequest(t *testing.T) {
	const longest = 5 * time.Minute
	for _, test := range []struct {
		asked              string
		limited, unlimited time.Duration // with timeouts of five minutes and 0
	}{
		{"30s", 30 * time.Second, 30 * time.Second},
		{"30", 30 * time.Second, 30 * time.Second},
		{" 2.5 ", 2500 * time.Millisecond, 2500 * time.Millisecond},
		{"1e2", longest, 0},
		{"100ns", 100, 100},
		{"5m", longest, longest},
		{"301", longest, 301 * time.Second},
		{"1d", longest, 24 * time.Hour},
		{"9000000000", longest, 9e9 * time.Second},
		{"", longest, 0},
		{"0", longest, 0},
		{"0s", longest, 0},
		{"-1", longest, 0},
		{"-5s", longest, 0},
		{"soon", longest, 0},
		{"5s, 7s", longest, 0}, // a field that came twice
		{"nan", longest, 0},
		{"inf", longest, 0},
		{"1e10", longest, 0}, // beyond what a duration can be
		{"1e-10", longest, 0},
		{"9999999999h", longest, 0},
		{strings.Repeat("9", 2000), longest, 0},
	} {
		repl := caddy.NewReplacer()
		repl.Set("asked", test.asked)
		r := httptest.NewRequest("GET", "/", nil)
		r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
		for timeout, want := range map[time.Duration]time.Duration{longest: test.limited, 0: test.unlimited} {
			s := &Handler{Timeout: new(caddy.Duration(timeout)), TimeoutFrom: "{asked}"}
			if got := s.timeoutOf(r); got != want {
				t.Errorf("timeout %s, asked for %q: %s; expected %s", timeout, test.asked, got, want)
			}
		}
	}
}

// Without a text, and in a dry run, no request has a timeout of its own.
func TestTimeoutOfHandler(t *testing.T) {
	for _, s := range []*Handler{
		{Timeout: new(caddy.Duration(time.Hour))},
		{Timeout: new(caddy.Duration(time.Hour)), TimeoutFrom: "1ms", DryRun: true},
	} {
		must(t, s.fillIn())
		s.derive()
		if got, want := s.timeoutOf(httptest.NewRequest("GET", "/", nil)), time.Duration(*s.Timeout); got != want {
			t.Errorf("the timeout is %s; expected %s", got, want)
		}
	}
}
