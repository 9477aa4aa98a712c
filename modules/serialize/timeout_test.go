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
// of which 0 is none. In a dry run, no request has one.
func TestTimeoutOfRequest(t *testing.T) {
	const longest = 5 * time.Minute
	type timeouts struct{ limited, unlimited time.Duration } // with timeouts of five minutes and 0
	tests := map[string]timeouts{
		"30s":        {30 * time.Second, 30 * time.Second},
		" 2.5 ":      {2500 * time.Millisecond, 2500 * time.Millisecond},
		"5m":         {longest, longest},
		"301":        {longest, 301 * time.Second},
		"1d":         {longest, 24 * time.Hour},
		"9000000000": {longest, 9e9 * time.Second},
	}
	// A field that came twice is unreadable, and so is what is beyond a duration.
	for _, asked := range []string{"", "0", "-5s", "1e2", "5s, 7s", "inf", "9999999999h", strings.Repeat("9", 2000)} {
		tests[asked] = timeouts{longest, 0}
	}
	for asked, want := range tests {
		repl := caddy.NewReplacer()
		repl.Set("asked", asked)
		r := httptest.NewRequest("GET", "/", nil)
		r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
		for timeout, want := range map[time.Duration]time.Duration{longest: want.limited, 0: want.unlimited} {
			s := &Handler{Timeout: new(caddy.Duration(timeout)), TimeoutFrom: "{asked}"}
			if got := s.timeoutOf(r); got != want {
				t.Errorf("timeout %s, asked for %q: %s; expected %s", timeout, asked, got, want)
			}
		}
	}
	dry := &Handler{TimeoutFrom: "1ms", DryRun: true}
	must(t, dry.fillIn())
	dry.derive()
	if got := dry.timeoutOf(httptest.NewRequest("GET", "/", nil)); got != dryRunPatience {
		t.Errorf("in a dry run: %s", got)
	}
}
