package serialize

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// placeReader reads the queues of an engine, and notes in each kept ticket where it
// stands. One reading serves all browsers that ask within a time.
type placeReader struct {
	mu      sync.Mutex
	reading chan struct{} // closed when the reading under way is done; nil without one
	begun   time.Time     // the latest reading that is done
	cost    time.Duration // of that
	queues  map[string]remoteTickets
}

// remoteTickets are the tickets that other processes have in a queue, by number.
type remoteTickets map[uint64]remoteTicket

type remoteTicket struct {
	place  int // among those that wait; 0 if it is inside
	inside bool
	paused bool // its queue is
}

// A reading is used for a second, but readings take at most a twentieth of the time,
// because the engine's lock is held meanwhile.
const (
	placesAge   = time.Second
	placesShare = 20
	placesWait  = 500 * time.Millisecond
)

// read makes sure that the places are not older than placesAge, where that is allowed,
// and waits for it a moment. An engine that does not answer must not keep the page from
// the browser.
func (p *placeReader) read(e *sharedEngine) {
	if reading, _ := p.begin(e, time.Now().Add(-placesAge)); reading != nil {
		awaitReading(reading, placesWait)
	}
}

// find reads until it finds the place of a new ticket, or a moment has passed.
func (p *placeReader) find(k *keptTicket) {
	end := time.Now().Add(placesWait)
	for k.token.Load() == 0 && time.Now().Before(end) {
		p.readOnce(k.engine.sharedEngine, time.Now(), end)
	}
}

// readSince makes sure that the places are from a certain time or later, unless that
// takes more than a moment.
func (p *placeReader) readSince(e *sharedEngine, from time.Time) {
	for end := time.Now().Add(placesWait); p.isBefore(from) && time.Now().Before(end); {
		p.readOnce(e, from, end)
	}
}

func (p *placeReader) isBefore(from time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun.Before(from)
}

// readOnce waits for a reading until the end, or until one is allowed.
func (p *placeReader) readOnce(e *sharedEngine, from, end time.Time) {
	reading, pause := p.begin(e, from)
	if reading == nil {
		time.Sleep(min(max(pause, time.Millisecond), time.Until(end)))
		return
	}
	awaitReading(reading, time.Until(end))
}

// begin returns the reading that is under way, or a new one. It returns nil if the
// latest is from a certain time or later. It also does if it is too early for a new one,
// and says for how long.
func (p *placeReader) begin(e *sharedEngine, from time.Time) (reading chan struct{}, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pause = time.Until(p.begun.Add(placesShare * p.cost)); p.begun.After(from) || p.reading == nil && pause > 0 {
		return nil, pause
	}
	if p.reading == nil {
		p.reading = make(chan struct{})
		go p.readNow(e, p.reading)
	}
	return p.reading, 0
}

func awaitReading(reading <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-reading:
	case <-timer.C:
	}
}

func (p *placeReader) readNow(e *sharedEngine, done chan struct{}) {
	begun := time.Now()
	states, err := e.Engine.Queues(context.Background())
	queues := make(map[string]remoteTickets)
	if err == nil {
		for _, state := range states {
			if remote := notePlaces(state, begun); remote != nil {
				queues[state.Prefix] = remote
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.cost = begun, time.Since(begun)
	if err == nil {
		p.queues = queues
	}
	p.reading = nil
	close(done)
}

// notePlaces notes in the kept tickets of a queue where they stand, and returns the
// tickets of other processes.
func notePlaces(state serializer.QueueState, now time.Time) (remote remoteTickets) {
	place, turn, paused := 0, time.Duration(-1), state.PausedUntil != nil
	for i := range state.Tickets {
		t := &state.Tickets[i]
		inside := t.State == serializer.StateInside
		if !inside {
			place++
		}
		k, ours := t.Requester.(*keptTicket)
		if !ours && t.Requester != nil {
			continue
		}
		token, err := strconv.ParseUint(t.Token, 10, 64)
		if err != nil {
			continue
		}
		if !ours {
			if remote == nil {
				remote = make(remoteTickets)
			}
			remote[token] = remoteTicket{place, inside, paused}
			continue
		}
		if inside {
			k.place.Store(0)
			k.token.Store(token)
			continue
		}
		if turn < 0 {
			turn = k.turnTime(state.Inside, now)
		}
		k.paused.Store(paused)
		k.place.Store(int64(place))
		k.token.Store(token) // last: who sees it sees the place
		k.estimate.Store(int64(turn) * int64(place))
	}
	return remote
}

// turnTime is how long it takes until the next one enters, on average; 0 if nobody
// has left yet.
func (k *keptTicket) turnTime(inside int, now time.Time) time.Duration {
	capacity := k.capacity
	if capacity == 0 {
		capacity = max(inside, 1)
	}
	if k.meters.holds.nanoseconds.Load() == 0 {
		return 0
	}
	pace := k.meters.holds.pace(capacity, k.meters.stats.inside.Ages(k.name, now))
	return time.Duration(float64(time.Second) / pace)
}

// remote returns the first of the tickets with these numbers that another process has.
func (p *placeReader) remote(queue string, tokens []uint64) (t remoteTicket, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tickets := p.queues[queue]
	for _, token := range slices.Sorted(slices.Values(tokens)) {
		if t, ok = tickets[token]; ok {
			break
		}
	}
	return t, ok
}

// shown is the ticket's place as of now.
func (k *keptTicket) shown() waitingpage.Place {
	if k.token.Load() == 0 {
		k.engine.places.find(k)
	} else {
		k.engine.places.read(k.engine.sharedEngine)
	}
	place := int(k.place.Load())
	return waitingpage.Place{
		Place: place, Turn: place == 0 && k.token.Load() != 0, Paused: k.paused.Load(), Estimate: time.Duration(k.estimate.Load()),
	}
}
