package waitingpage

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Place is where a browser stands.
type Place struct {
	Number int     `json:"number"` // among those that wait; 1 is the next, 0 is not known yet
	Paused bool    `json:"paused"` // nobody enters
	Wait   float64 `json:"wait"`   // seconds until the turn, as a guess; 0 is not known

	Opens  time.Time `json:"opens,omitzero"`   // when places are given; zero if they are
	Ask    float64   `json:"ask,omitempty"`    // seconds after which the script asks again; 0 is at once
	Listed int       `json:"listed,omitempty"` // the browser's number in the list for the draw; 0 is none

	since time.Time     // when the number became this one
	next  time.Duration // until the next contact; 0 is the usual time
}

// refresh is after how many seconds a browser without JavaScript comes again, or a program.
func (p Place) refresh() int { return int(math.Ceil(cmp.Or(p.next, refreshTime).Seconds())) }

// Standing is where a waiter stands, as of the latest reading of its queue, or nil.
type Standing = atomic.Pointer[Place]

// Waiter is a requester that has to know where it stands. Standing is nil if it need not.
type Waiter interface{ Standing() *Standing }

// Standing implements [Waiter].
func (t *Ticket) Standing() *Standing { return &t.place }

// Places are those of an engine whose queues are read for all waiters that have to know where they
// stand.
type Places struct {
	*engines.Shared
	absences absences

	mu   sync.Mutex
	read time.Time // when the latest reading ended
	cost time.Duration
}

// PlacesOf are those of an engine.
func PlacesOf(e *engines.Shared) *Places {
	type key struct{}
	places, ok := e.Attached.Load(key{})
	if !ok {
		places, _ = e.Attached.LoadOrStore(key{}, &Places{Shared: e, absences: absences{costs: make(map[absent]absence), long: make(map[string]int)}})
	}
	return places.(*Places)
}

func (t *Ticket) places() *Places { return PlacesOf(t.engine.Shared) }

// A reading holds the engine's lock. So the next one comes only after fifty times as long as the
// latest one took, but after a second at most.
const (
	placesShare = 50
	placesAge   = time.Second
	placesWait  = 500 * time.Millisecond
)

// Place is where the ticket stands. It may have been taken at this moment: then Place waits
// a little until it is in line, or decided.
func (t *Ticket) Place() Place {
	if place, yet := t.registeredPlace(); yet {
		return place
	}
	for end := time.Now().Add(placesWait); ; {
		t.places().update()
		if place := t.place.Load(); place != nil {
			now := *place
			now.Listed = t.listed
			if !now.Paused {
				line := t.line.Load()
				now.Wait = line.Report.Hold.Guess(now.Number, line.Capacity, t.engine.Holds(t.about.Queue), time.Since(now.since))
			}
			return now
		}
		if time.Now().After(end) || t.await(context.Background(), 5*time.Millisecond) {
			return Place{}
		}
	}
}

// update reads the queues, unless the latest reading is young enough, and notes where the
// waiters stand that have to know.
func (p *Places) update() {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := time.Now()
	if begun.Sub(p.read) < min(placesShare*p.cost, placesAge) {
		return
	}
	for _, state := range p.Known(func(string) bool { return true }) {
		number := 0
		for _, ticket := range state.Tickets {
			if ticket.State == serializer.StateInside {
				continue
			}
			number++
			if waiter, ok := ticket.Requester.(Waiter); ok && waiter.Standing() != nil {
				place := &Place{Number: number, Paused: state.PausedUntil != nil, since: begun}
				if before := waiter.Standing().Load(); before != nil && before.Number == number && !before.Paused {
					place.since = before.since
				}
				waiter.Standing().Store(place)
			}
		}
	}
	p.read = time.Now()
	p.cost = p.read.Sub(begun)
}

// Number is the place of a waiter; 0 is not known, which it may be in the first second.
func (p *Places) Number(of Waiter) int {
	p.update()
	if place := of.Standing().Load(); place != nil {
		return place.Number
	}
	return 0
}
