package serializer

import "time"

// pollInterval is the time between two looks at what nobody tells.
const pollInterval = 2 * time.Millisecond

// signalledInterval is the same where a signal is known to come: then polling is
// only the net beneath it.
const signalledInterval = 10 * pollInterval

// changeSignal tells that something changed in a directory, but not what. It
// remembers a change until the next wait.
type changeSignal interface {
	// wait returns when something has changed since the last call, and then
	// reports true; also after an interruption, and at the latest after timeout.
	wait(timeout time.Duration) (changed bool, err error)
	// interrupt ends the wait, or the next one if there is none. It may be called
	// after close.
	interrupt()
	// close must not be called during wait.
	close()
}

// poller waits between two looks at a directory. Nothing depends on its signal
// but how soon the next look comes: a signal that comes late, or never, does no
// harm.
type poller struct {
	signal changeSignal // nil where the system has none
	heard  bool         // the signal has come before
}

// wait returns when the directory is to be looked at again, at the latest after
// timeout. A waiter's own ticket is a change, too: a signal that works has come
// before anybody waits for another process.
func (p *poller) wait(timeout time.Duration) {
	if p.signal == nil {
		time.Sleep(min(timeout, pollInterval))
		return
	}
	interval := pollInterval
	if p.heard {
		interval = signalledInterval
	}
	changed, err := p.signal.wait(min(timeout, interval))
	if err != nil {
		time.Sleep(min(timeout, pollInterval))
	}
	p.heard = err == nil && (p.heard || changed)
}

func (p *poller) interrupt() {
	if p.signal != nil {
		p.signal.interrupt()
	}
}

func (p *poller) close() {
	if p.signal != nil {
		p.signal.close()
	}
}
