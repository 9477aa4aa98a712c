package serializer

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// laterHandler is a log handler that passes records on to another one in a goroutine, in
// order. The engine logs while it holds locks. The other handler may block, or call the
// engine.
type laterHandler struct {
	slog.Handler

	mu      sync.Mutex
	records []slog.Record
	idle    chan struct{} // closed when all records are passed on; nil if they are
}

// Enabled implements [slog.Handler]. The other handler is asked later, too.
func (h *laterHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (h *laterHandler) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, r)
	if h.idle == nil {
		h.idle = make(chan struct{})
		go h.passOn()
	}
	return nil
}

func (h *laterHandler) passOn() {
	for records := h.take(); records != nil; records = h.take() {
		for _, r := range records {
			if h.Handler.Enabled(context.Background(), r.Level) {
				_ = h.Handler.Handle(context.Background(), r)
			}
		}
	}
}

// take returns the records that are to be passed on, or nil.
func (h *laterHandler) take() (records []slog.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.records == nil {
		close(h.idle)
		h.idle = nil
	}
	records, h.records = h.records, nil
	return records
}

// wait waits until all records are passed on, but at most for a while.
func (h *laterHandler) wait(atMost time.Duration) {
	h.mu.Lock()
	idle := h.idle
	h.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(atMost):
	}
}
