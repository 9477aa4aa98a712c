package testcaddy

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// Log collects the output of a process.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Entry is one line of a log in JSON.
type Entry map[string]any

// Text returns a field of the entry, or "" if the field is missing or not a string.
func (e Entry) Text(field string) string {
	text, _ := e[field].(string)
	return text
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the whole output.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
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
