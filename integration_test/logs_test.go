//go:build unix

package integration_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// logs collects what a process writes.
type logs struct {
	mu      sync.Mutex
	text    bytes.Buffer
	waiting map[string]chan struct{} // for a text to be seen
}

// entry is one line of Caddy's log.
type entry map[string]any

func newLogs() *logs { return &logs{waiting: make(map[string]chan struct{})} }

// Write implements [io.Writer].
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	l.tell()
	return len(p), nil
}

func (l *logs) tell() {
	for text, seen := range l.waiting {
		if strings.Contains(l.text.String(), text) {
			close(seen)
			delete(l.waiting, text)
		}
	}
}

// seen returns a channel that is closed once the text is in the log. There is
// one for each text.
func (l *logs) seen(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(chan struct{})
	l.waiting[text] = seen
	l.tell()
	return seen
}

// String returns all that was written.
func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// all returns the entries of the log that are wanted.
func (l *logs) all(wanted func(entry) bool) (found []entry) {
	for line := range strings.Lines(l.String()) {
		var e entry
		if json.Unmarshal([]byte(line), &e) == nil && wanted(e) {
			found = append(found, e)
		}
	}
	return found
}

// entries returns the entries with a message.
func (l *logs) entries(message string) []entry {
	return l.all(func(e entry) bool { return e["msg"] == message })
}

// text returns a field of an entry.
func (e entry) text(field string) string {
	text, _ := e[field].(string)
	return text
}

// awaitEntryOf waits until the log has an entry with a message, and returns the
// first one.
func (c *caddy) awaitEntryOf(message string) entry {
	c.t.Helper()
	return c.awaitEntry("the log says "+message, func(e entry) bool { return e["msg"] == message })
}

func (c *caddy) awaitEntry(what string, wanted func(entry) bool) entry {
	c.t.Helper()
	var found []entry
	eventually(c.t, patience, what, func() bool {
		found = c.log.all(wanted)
		return len(found) > 0
	})
	return found[0]
}
