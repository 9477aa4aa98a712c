package queueapi

import (
	"fmt"
	"regexp"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// defaultPause is how long a pause lasts if nobody says so.
const defaultPause = 10 * time.Minute

// UntilText is the end of a pause for people.
func UntilText(until time.Time) string {
	if !until.Before(serializer.Resumed) {
		return "until it is resumed"
	}
	return "until " + until.Local().Format(time.DateTime)
}

// shortestPause is long enough for all processes to learn of it.
const shortestPause = 10 * time.Millisecond

// ParsePause reads how long a pause is to last, and returns its end. 0 is until it is
// resumed, for which the end is the zero time.
func ParsePause(text string) (until time.Time, err error) {
	length := defaultPause
	if text != "" {
		if length, err = caddy.ParseDuration(text); err != nil || length != 0 && length < shortestPause {
			return until, fmt.Errorf("for %q: expected a duration such as 10m, or 0 until it is resumed", text)
		}
	}
	if length == 0 {
		return until, nil
	}
	return time.Now().Add(length), nil
}

// ExpandShorthands replaces the shorthands of placeholders, as the Caddyfile does.
func ExpandShorthands(prefix string) string {
	text := caddyfile.Segment{{Text: prefix}}
	httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&text)
	return text[0].Text
}

// Placeholder matches a placeholder in a prefix.
var Placeholder = regexp.MustCompile(`\{[^{}]*\}`)
