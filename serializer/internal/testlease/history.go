package testlease

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// History is who was inside a queue from when to when, on one clock.
type History struct {
	start time.Time

	mu    sync.Mutex
	holds []*Hold
}

// Hold is one turn. Its times are since the history began.
type Hold struct {
	Token       uint64
	Asked, Came time.Duration
	Went        time.Duration // when the holder left, or the queue ceased to vouch for it
	Slot        string        // that the holder had; empty in a queue without slots
}

// NewHistory begins a history now.
func NewHistory() *History { return &History{start: time.Now()} }

// Asks begins the hold of a client that asks for its turn now. It is not yet inside.
func (h *History) Asks() *Hold {
	return &Hold{Asked: time.Since(h.start), Went: math.MaxInt64}
}

// Enter notes that a client is inside.
func (h *History) Enter(hold *Hold, token uint64, slot string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold.Token, hold.Slot, hold.Came = token, slot, time.Since(h.start)
	h.holds = append(h.holds, hold)
}

// Leave notes the end of a hold, or that its process was stopped or its turn revoked. The first
// of these counts.
func (h *History) Leave(hold *Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold.Went = min(hold.Went, time.Since(h.start))
}

// Len counts the holds.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holds)
}

// First is the token of the first hold, and when it began; 0 if there was none.
func (h *History) First() (token uint64, came time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.holds) == 0 {
		return 0, h.start
	}
	return h.holds[0].Token, h.start.Add(h.holds[0].Came)
}

// Gaps are the times between one hold and the next.
func (h *History) Gaps() (gaps []time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, hold := range h.holds[1:] {
		gaps = append(gaps, hold.Came-h.holds[i].Went)
	}
	return gaps
}

// Judge looks for moments at which the turns can have begun and ended so that at most one was
// inside, in the order of tokens. A turn begins between the request and the arrival behind the
// queue, and ends at any time after its hold. The earliest moment for each is the best for all
// that follow. In a queue with slots, at most one had each, in any order.
func (h *History) Judge() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	slots := make(map[string][]*Hold)
	for _, hold := range h.holds {
		slots[hold.Slot] = append(slots[hold.Slot], hold)
	}
	slices.SortFunc(slots[""], func(a, b *Hold) int { return cmp.Compare(a.Token, b.Token) })
	for _, holds := range slots {
		if err := judge(holds); err != nil {
			return err
		}
	}
	return nil
}

func judge(holds []*Hold) error {
	before, free := new(Hold), time.Duration(0)
	for _, hold := range holds {
		begins := max(free, hold.Asked)
		if hold.Token == before.Token || begins > hold.Came {
			return fmt.Errorf("in a history of %d turns, two were inside or out of order: %+v, then %+v", len(holds), *before, *hold)
		}
		before, free = hold, max(begins, hold.Went)
	}
	return nil
}
