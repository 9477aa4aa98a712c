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
	none := map[time.Duration]time.Duration{longest: longest, 0: 0}
	for asked, limited := range map[string]map[time.Duration]time.Duration{ // with timeouts of five minutes and 0
		"30s":        {longest: 30 * time.Second, 0: 30 * time.Second},
		" 2.5 ":      {longest: 2500 * time.Millisecond, 0: 2500 * time.Millisecond},
		"5m":         {longest: longest, 0: longest},
		"301":        {longest: longest, 0: 301 * time.Second},
		"1d":         {longest: longest, 0: 24 * time.Hour},
		"9000000000": {longest: longest, 0: 9e9 * time.Second},
		// A field that came twice is unreadable, and so is what is beyond a duration.
		"": none, "0": none, "-5s": none, "1e2": none, "5s, 7s": none, "inf": none, "9999999999h": none, strings.Repeat("9", 2000): none,
	} {
		repl := caddy.NewReplacer()
		repl.Set("asked", asked)
		r := httptest.NewRequest("GET", "/", nil)
		r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
		for timeout, want := range limited {
			s := &Handler{Timeout: new(caddy.Duration(timeout)), TimeoutFrom: "{asked}"}
			if got := s.timeoutOf(r); got != want {
				t.Errorf("timeout %s, asked for %q: %s; expected %s", timeout, asked, got, want)
			}
		}
	}
	dry := &Handler{TimeoutFrom: "1ms", DryRun: true}
	must(t, dry.fillIn())
	if got := dry.timeoutOf(httptest.NewRequest("GET", "/", nil)); got != dryRunPatience {
		t.Errorf("in a dry run: %s", got)
	}
}
