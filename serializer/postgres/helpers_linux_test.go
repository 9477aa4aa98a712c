package postgres

import (
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// open makes an engine, as a process does, and does not wait for the server.
func open(t testing.TB, o Options, log ...io.Writer) *serializer.Engine {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = shortTTL
	}
	o.Log = slog.New(slog.NewTextHandler(io.MultiWriter(append(log, logOf(t))...), nil))
	store, err := Open(o)
	testlease.Must(t, err)
	return testlease.NewEngine(t, store)
}

// testLog writes to the log of a test until it ends. A store may still write an entry later,
// which it has held back because there were many.
type testLog struct {
	mu sync.Mutex
	to io.Writer
}

func logOf(t testing.TB) io.Writer {
	l := &testLog{to: t.Output()}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.to = io.Discard
	})
	return l
}

func (l *testLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(text)
}

// ready makes an engine, and waits until it has a lease.
func ready(t testing.TB, url string) *serializer.Engine {
	t.Helper()
	return testlease.Ready(t, open(t, Options{URL: url}))
}
