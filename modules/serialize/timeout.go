package serialize

import (
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

// timeout is the setting of the longest wait, and of the text by which a request asks for a
// shorter one.
func timeout() setting {
	s := directive.DurationSetting("timeout", defaultTimeout, 0, directive.Longest, func(s *Handler) **caddy.Duration { return &s.Timeout })
	s.Syntax, s.Parse = "<duration> [<text>]", (*Handler).parseTimeout
	return s
}

func (s *Handler) parseTimeout(d *caddyfile.Dispenser) error {
	values := d.RemainingArgs()
	if len(values) == 0 || len(values) > 2 {
		return d.Errf("timeout: found %d values; expected a duration such as 60s, and perhaps a text such as {http.request.header.X-Request-Timeout}", len(values))
	}
	longest, err := directive.DurationOf(d, "timeout", values[0], 0)
	s.Timeout, s.TimeoutFrom = &longest, strings.Join(values[1:], "")
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
