package uniqueid

import (
	"math/rand/v2"
	"sync"
)

// Option changes where a generator takes time and randomness from. A nil Option changes
// nothing.
type Option func(*settings)

type settings struct {
	clock  Clock         // nil for the system's
	random func() uint64 // nil for the runtime's generator
}

// WithClock makes a generator read the time from clock. The default, also for nil, is the
// system's clock.
func WithClock(clock Clock) Option {
	return func(s *settings) { s.clock = clock }
}

// WithRandom makes a generator draw its random bits from source, one caller at a time,
// so that source need not be safe for concurrent use. The default, also for nil, is the Go
// runtime's ChaCha8 generator, which is seeded from the system's entropy and is separate
// for every thread.
func WithRandom(source rand.Source) Option {
	if source == nil {
		return nil
	}
	var mu sync.Mutex
	return func(s *settings) {
		s.random = func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return source.Uint64()
		}
	}
}

func newSettings(options []Option) settings {
	var s settings
	for _, option := range options {
		if option != nil {
			option(&s)
		}
	}
	return s
}

// draw returns 64 bits from random, or from the runtime's generator. The latter is called
// directly, because this is on the path of every ID.
func draw(random func() uint64) uint64 {
	if random == nil {
		return rand.Uint64()
	}
	return random()
}
