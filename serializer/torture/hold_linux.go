package main

import (
	"errors"
	"time"
)

// hold makes a process wait when it next gets to a certain point. So it can be stopped or
// killed exactly there.
type hold struct{ caught, released chan struct{} }

// The points at which a process can be held.
const (
	inGuard  = iota // while it issues tickets
	inside          // the first queue
	anywhere        // it is not held
)

// hold waits here, if the harness wants that, until it releases the process.
func (p *process) hold(point int) {
	select {
	case p.holds[point].caught <- struct{}{}:
		<-p.holds[point].released
	default:
	}
}

// catchPatience is how long a fault waits for a process to reach a point.
const catchPatience = 500 * time.Millisecond

// Catch returns when the process waits at a point.
func (p *process) Catch(point int, _ *bool) error {
	select {
	case <-p.holds[point].caught:
		return nil
	case <-time.After(catchPatience):
		return errors.New("it did not get there")
	}
}

// Release lets the process continue.
func (p *process) Release(point int, _ *bool) error {
	p.holds[point].released <- struct{}{}
	return nil
}
