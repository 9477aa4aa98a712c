package serializer

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// slowHandler is a log handler that does something for each entry.
type slowHandler struct {
	slog.Handler
	do      func()
	enabled func()        // is called when a level is asked for
	done    chan struct{} // gets a message after each entry
}

func (h *slowHandler) Enabled(context.Context, slog.Level) bool {
	if h.enabled != nil {
		h.enabled()
	}
	return true
}

func (h *slowHandler) Handle(context.Context, slog.Record) error {
	h.do()
	h.done <- struct{}{}
	return nil
}

// Bug: the engine held locks while it logged. So a log handler that called the engine
// blocked it for ever.
func TestLogHandlerCallsEngine(t *testing.T) {
	for name, call := range map[string]func(e *File) error{
		"Queues": func(e *File) error { _, err := e.Queues(t.Context()); return err },
		"Close":  (*File).Close,
	} {
		t.Run(name, func(t *testing.T) {
			h := &slowHandler{done: make(chan struct{}, 100)}
			e, err := OpenFile(t.TempDir(), FileOptions{Log: slog.New(h)})
			if err != nil {
				t.Fatal(err)
			}
			h.do = func() {
				if err := call(e); err != nil {
					t.Error(err)
				}
			}
			h.enabled = h.do
			turn := enter(t, e, arrival("a_"))
			touch(t, e.path, pauseFiles+"nonsense")
			select {
			case <-h.done:
			case <-time.After(patience / 4):
				t.Fatal("the engine is blocked")
			}
			turn.Leave()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Close waits for the last entries of the log.
func TestCloseWritesLog(t *testing.T) {
	h := &slowHandler{do: func() { time.Sleep(50 * time.Millisecond) }, done: make(chan struct{}, 3)}
	e, err := OpenFile(t.TempDir(), FileOptions{Log: slog.New(h)})
	if err != nil {
		t.Fatal(err)
	}
	for range cap(h.done) {
		e.log.Info("one of the last entries")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if len(h.done) != cap(h.done) {
		t.Errorf("%d of %d entries are written", len(h.done), cap(h.done))
	}
}
