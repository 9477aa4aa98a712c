package response

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// buffer takes the body of a response from the handlers at once, and
// sends it as fast as the client takes it. Beyond its size, the handlers wait
// for the client.
//
// It sends in a goroutine of its own, the sender, which runs only while the
// client has not taken everything. Then only the sender writes to the client,
// because a response writer is not safe for two. It only writes and flushes:
// the effects of a header in the writers around the queue belong to the
// request's own goroutine.
type buffer struct {
	size     int                 // in bytes
	to       http.ResponseWriter // the client
	timeouts *writeTimeouts

	mu      sync.Mutex
	changed sync.Cond // there is room, or the sender has ended
	first   *piece    // of what the sender has not taken yet
	last    *piece
	length  int   // of that, and of what is being written
	flush   bool  // asked for, before the first piece
	sending bool  // there is a sender
	stopped bool  // the handlers may add no more
	err     error // why the client takes no more
	thrown  any   // by a writer around the queue

	deadline *time.Time       // that the sender has not set yet, or nil
	limits   *timeoutSettings // of what is written next; nil if no handler has set any
}

// errStopped ends the handlers' wait for a client.
var errStopped = errors.New("the response was stopped")

// open makes the buffer ready for a client.
func (b *buffer) open(to http.ResponseWriter, size int, timeouts *writeTimeouts) {
	b.to, b.size, b.timeouts = to, size, timeouts
	b.changed.L = &b.mu
}

// add sends p, behind what was added before. It waits while the buffer is full.
func (b *buffer) add(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(p) > 0 {
		for b.length >= b.size && !b.stopped && b.err == nil {
			b.changed.Wait()
		}
		if err := b.endedLocked(); err != nil {
			return n, err
		}
		added := b.appendLocked(p[:min(len(p), b.size-b.length)])
		n, p = n+added, p[added:]
		b.sendLocked()
	}
	return n, nil
}

func (b *buffer) endedLocked() error {
	if b.stopped {
		return errStopped
	}
	return b.err
}

// appendLocked copies the beginning of p. It returns how much.
func (b *buffer) appendLocked(p []byte) int {
	if b.last == nil || b.last.isFull() {
		b.enqueueLocked(newPiece())
	}
	n := b.last.append(p)
	b.length += n
	return n
}

// setLimits applies settings to what is written from now on.
func (b *buffer) setLimits(s timeoutSettings) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = &s
}

// limitLocked applies the latest settings.
func (b *buffer) limitLocked() {
	if b.limits != nil {
		b.to = b.timeouts.apply(b.to, *b.limits)
	}
}

// addPiece sends a whole piece behind the others.
func (b *buffer) addPiece(p *piece) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.length += p.length
	b.enqueueLocked(p)
	b.sendLocked()
}

func (b *buffer) enqueueLocked(p *piece) {
	if b.last == nil {
		b.first = p
	} else {
		b.last.next = p
	}
	b.last = p
}

// addFlush sends what was added before, and flushes it. It does not wait.
func (b *buffer) addFlush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.endedLocked(); err != nil {
		return err
	}
	b.flushLocked()
	return nil
}

// flushLocked asks for a flush behind all pieces.
func (b *buffer) flushLocked() {
	if b.last == nil {
		b.flush = true
	} else {
		b.last.flush = true
	}
	b.sendLocked()
}

// sendLocked starts a sender unless there is one.
func (b *buffer) sendLocked() {
	if !b.sending {
		b.sending = true
		go b.send()
	}
}

// send writes until nothing is left.
func (b *buffer) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() {
		if b.thrown = recover(); b.thrown != nil { // the request's own goroutine throws it again
			b.stopped, b.length = true, 0
			b.discardLocked()
		}
		b.sending = false
		b.changed.Broadcast()
	}()
	for b.first != nil || b.flush {
		b.limitLocked()
		b.takeDeadlineLocked()
		b.sendNextLocked()
	}
	b.takeDeadlineLocked()
}

// sendNextLocked flushes what was written, or writes the next piece. It unlocks
// the buffer meanwhile.
func (b *buffer) sendNextLocked() {
	if b.flush {
		b.flush = false
		b.unlocked(func() error { return http.NewResponseController(b.to).Flush() })
		return
	}
	p := b.first
	b.first = p.next
	if b.first == nil {
		b.last = nil
	}
	b.flush = p.flush
	length := p.length
	b.unlocked(func() error {
		defer p.free()
		_, err := b.to.Write(p.bytes())
		return err
	})
	b.length -= length
	b.changed.Broadcast()
}

// unlocked does what waits for the client.
func (b *buffer) unlocked(write func() error) {
	err := func() error {
		b.mu.Unlock()
		defer b.mu.Lock() // also where it panics
		return write()
	}()
	if isClientGone(err) {
		b.err = err
		b.discardLocked()
	}
}

// discard drops what the sender has not taken yet. Nothing more can be added.
func (b *buffer) discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	b.discardLocked()
}

// flushLast flushes what was written before the rest was dropped.
func (b *buffer) flushLast() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && b.thrown == nil {
		b.flushLocked()
	}
}

func (b *buffer) discardLocked() {
	for b.first != nil {
		p := b.first
		b.length -= p.length
		b.first = p.next
		p.free()
	}
	b.last, b.flush = nil, false
}

// stop ends the handlers' wait, and lets them add no more. What they have added
// is still sent.
func (b *buffer) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	b.changed.Broadcast()
}

// isSending reports whether the client has not taken everything yet.
func (b *buffer) isSending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sending
}

// awaitSent waits until the client has taken everything. The handlers can then
// write to the client themselves, with the writer that it returns.
func (b *buffer) awaitSent() (http.ResponseWriter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.sending && !b.stopped {
		b.changed.Wait()
	}
	if err := b.endedLocked(); err != nil {
		return nil, err
	}
	b.limitLocked()
	return b.to, nil
}

// drain waits until there is no sender any more.
func (b *buffer) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.sending {
		b.changed.Wait()
	}
	if b.thrown != nil {
		panic(b.thrown)
	}
}
