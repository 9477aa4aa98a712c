package queueapi

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// defaultPause is how long a pause lasts if nobody says so.
const defaultPause = 10 * time.Minute

// UntilText is the end of a pause for people.
func UntilText(until time.Time) string {
	if !until.Before(serializer.Forever) {
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

// Matches reports whether a name stands for a queue. One that ends in * stands for all
// queues whose names begin so.
func Matches(name, queue string) bool {
	start, all := strings.CutSuffix(name, "*")
	return queue == name || all && strings.HasPrefix(queue, start)
}

// Placeholder matches a placeholder in a prefix.
var Placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// Escape is the name of the queue of a prefix, which may end in * for all whose names
// begin so.
func Escape(prefix string) string {
	start, all := strings.CutSuffix(prefix, "*")
	if all {
		return serializer.QueueName(start) + "*"
	}
	return serializer.QueueName(prefix)
}
