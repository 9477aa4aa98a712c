package testcaddy

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// Log collects what a process writes.
type Log struct {
	mu      sync.Mutex
	text    bytes.Buffer
	awaited map[string]chan struct{} // by the text that is to come
}

// Entry is one line of a log in JSON.
type Entry map[string]any

// Text is a field of the entry, or empty if it has none that is a text.
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

// seen returns a channel that is closed once the text is in the log. There is
// one for each text.
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

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// All returns the wanted ones of the entries. What is no JSON is not an entry.
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
