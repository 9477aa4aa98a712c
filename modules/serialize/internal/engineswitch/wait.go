package engineswitch

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// engineWait is a request's wait for earlier generations, without a ticket.
type engineWait struct {
	arrival  serializer.Arrival
	arrived  time.Time
	token    uint64     // identifies the request until the engine issues a ticket
	position int        // how many were ahead on arrival
	ready    chan error // one message: nil if the engine's queue may be joined, else why not
	ended    bool       // the message was sent
}

// await returns nil once the engine's queue may be joined.
func (w *engineWait) await(ctx context.Context) error {
	var expired <-chan time.Time
	if w.arrival.Timeout > 0 {
		timer := time.NewTimer(w.arrival.Timeout)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-expired:
		return serializer.ErrTimeout
	}
}

// endLocked ends the wait. It is called once.
func (w *engineWait) endLocked(err error) {
	w.ended = true
	w.ready <- err
}

func (w *engineWait) refused(err error) error {
	return &serializer.Refused{Reason: serializer.ReasonOf(err), Queue: w.arrival.Queue, Position: w.position, Token: w.token, Err: err}
}

// state describes the request in lists of tickets.
func (w *engineWait) state() serializer.TicketState {
	arrived := w.arrived.UTC()
	s := serializer.TicketState{
		Token:     strconv.FormatUint(w.token, 10),
		State:     serializer.StateWaiting,
		Since:     arrived,
		Arrived:   arrived,
		Owner:     fmt.Sprintf("pid %d, waiting for requests of the queue's former engine", os.Getpid()),
		Requester: w.arrival.Requester,
	}
	if w.arrival.Client.IsValid() {
		s.Client = w.arrival.Client.String()
	}
	return s
}
