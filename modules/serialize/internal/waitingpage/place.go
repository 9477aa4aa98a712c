package waitingpage

import (
	"context"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Place is where a browser stands.
type Place struct {
	Number int     `json:"number"` // among those that wait; 1 is the next, 0 is not known yet
	Paused bool    `json:"paused"` // nobody enters
	Wait   float64 `json:"wait"`   // seconds until the turn, as a guess; 0 is not known
}

// Places reads the queues of an engine, and notes in the tickets of browsers where they
// stand. One reading serves all browsers that ask within a second. The zero value is ready.
type Places struct {
	mu    sync.Mutex
	begun time.Time // the latest reading
	cost  time.Duration
}

// A reading holds the engine's lock, so readings take at most a part of the time.
const (
	placesAge   = time.Second
	placesShare = 20
	placesWait  = 500 * time.Millisecond
	placesTries = 100
	placesPause = 5 * time.Millisecond
)

// Of returns the place of a ticket, at most a second old. If it has none, it may have been
// taken at this moment: then Of waits a little until it waits in line, or is decided.
func (p *Places) Of(t *Ticket, engine *serializer.Engine) Place {
	p.read(engine, placesAge)
	for range placesTries {
		if place := t.place.Load(); place != nil {
			return *place
		}
		if t.pause(context.Background(), placesPause) {
			break
		}
		p.read(engine, 0)
	}
	return Place{}
}

// read reads the queues, unless the latest reading is young enough.
func (p *Places) read(engine *serializer.Engine, age time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.begun) < max(age, placesShare*p.cost) {
		return
	}
	p.begun = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), placesWait)
	defer cancel()
	states, _ := engine.Queues(ctx) // none if it fails, and the places stay as they were
	for _, state := range states {
		number := 0
		for _, ticket := range state.Tickets {
			if ticket.State == serializer.StateInside {
				continue
			}
			number++
			if t, ok := ticket.Requester.(*Ticket); ok {
				t.place.Store(&Place{Number: number, Paused: state.PausedUntil != nil})
			}
		}
	}
	p.cost = time.Since(p.begun)
}
