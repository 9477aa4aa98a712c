package serializer

import "time"

// pollInterval is how often the directory is read if nothing signals changes.
const pollInterval = 2 * time.Millisecond

// signalledInterval is the interval if a signal is known to work. Polling is then only a
// safety net.
const signalledInterval = 10 * pollInterval

// changeSignal reports that something has changed in a directory, but not what. It
// remembers a change until the next wait.
type changeSignal interface {
	// wait returns true when something has changed since the last call. It returns false
	// after an interruption, and after timeout.
	wait(timeout time.Duration) (changed bool, err error)
	// interrupt ends the current wait, or the next one if there is none. It may be called
	// after close.
	interrupt()
	// close must not be called during wait.
	close()
}

// poller waits until the directory should be read again. A signal only makes that happen
// sooner: a signal that is late or never comes does no harm.
type poller struct {
	signal changeSignal // nil where the system has none
	heard  bool         // the signal has worked before
}

// wait returns when the directory should be read again, or after timeout. A waiter's own
// ticket is a change, too. So a signal that works has come before anybody waits for
// another process.
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
