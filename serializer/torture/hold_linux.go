package main

import (
	"errors"
	"sync/atomic"
	"time"
)

// hold makes a process wait when it next gets to a certain point. So it can be stopped or
// killed exactly there.
type hold struct {
	armed            atomic.Bool
	caught, released chan struct{}
}

// The points at which a process can be held.
const (
	inGuard = iota // while it issues tickets
	inside         // the first queue
	points
)

// hold waits here, if the harness wants that, until it releases the process.
func (p *process) hold(point int) {
	if h := &p.holds[point]; h.armed.CompareAndSwap(true, false) {
		h.caught <- struct{}{}
		<-h.released
	}
}

// catchPatience is how long a fault waits for a process to reach a point.
const catchPatience = 500 * time.Millisecond

// Catch returns when the process waits at a point.
func (p *process) Catch(point int, _ *bool) error {
	h := &p.holds[point]
	h.armed.Store(true)
	select {
	case <-h.caught:
		return nil
	case <-time.After(catchPatience):
		if h.armed.CompareAndSwap(true, false) {
			return errors.New("it did not get there")
		}
		<-h.caught
		return nil
	}
}

// Release lets the process continue.
func (p *process) Release(point int, _ *bool) error {
	p.holds[point].released <- struct{}{}
	return nil
}
