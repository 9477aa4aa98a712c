package testprocess

import (
	"encoding/json"
	"strings"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Log is the output of a process.
type Log struct{ wait.Output }

// Entry is one line of a log in JSON.
type Entry map[string]any

// Text returns a field of the entry, or "" if the field is missing or not a string.
func (e Entry) Text(field string) string {
	text, _ := e[field].(string)
	return text
}

// All returns the entries that satisfy wanted. Lines that are not JSON are ignored.
func (l *Log) All(wanted func(Entry) bool) (found []Entry) {
	for line := range strings.Lines(l.String()) {
		var e Entry
		if json.Unmarshal([]byte(line), &e) == nil && wanted(e) {
			found = append(found, e)
		}
	}
	return found
}

// Entries returns the entries with a message.
func (l *Log) Entries(message string) []Entry {
	return l.All(func(e Entry) bool { return e["msg"] == message })
}
