package testcaddy

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// Log collects the output of a process.
type Log struct {
	mu      sync.Mutex
	text    bytes.Buffer
	awaited map[string]chan struct{} // by the awaited text
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
	l.text.Write(p)
	l.announceLocked()
	return len(p), nil
}

func (l *Log) announceLocked() {
	for text, seen := range l.awaited {
		if strings.Contains(l.text.String(), text) {
			close(seen)
			delete(l.awaited, text)
		}
	}
}

// seen returns a channel that is closed once the text is in the log. Each text has one
// channel.
func (l *Log) seen(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(chan struct{})
	if l.awaited == nil {
		l.awaited = make(map[string]chan struct{})
	}
	l.awaited[text] = seen
	l.announceLocked()
	return seen
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
