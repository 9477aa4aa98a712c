package serialize

import (
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

const wantTimeoutFrom = "a text such as {http.request.header.X-Request-Timeout}"

func (s *Handler) parseTimeout(d *caddyfile.Dispenser) error {
	var text string
	if err := directive.Values(d, 1, "a duration such as 60s, and perhaps "+wantTimeoutFrom, &text, &s.TimeoutFrom); err != nil {
		return err
	}
	longest, err := directive.DurationOf(d, "timeout", text, 0)
	s.Timeout = &longest
	if err == nil && s.TimeoutFrom != "" && !strings.Contains(s.TimeoutFrom, "{") {
		err = d.Errf("timeout: %q has no placeholder; expected %s", s.TimeoutFrom, wantTimeoutFrom)
	}
	return err
}

// timeoutOf is how long a request may wait; 0 is for ever. What it asks for can only shorten
// the handler's timeout.
func (s *Handler) timeoutOf(r *http.Request) time.Duration {
	longest := time.Duration(*s.Timeout)
	if s.TimeoutFrom == "" {
		return longest
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	asked := readDuration(repl.ReplaceAll(s.TimeoutFrom, ""))
	if asked <= 0 || longest > 0 && asked > longest {
		return longest
	}
	return asked
}

// readDuration reads a duration as Caddy writes it, or a number of seconds. It is 0 if the text is
// neither, or out of range.
func readDuration(text string) time.Duration {
	text = strings.TrimSpace(text)
	asked, err := caddy.ParseDuration(text)
	if err != nil {
		asked, _ = caddy.ParseDuration(text + "s")
	}
	return asked
}
