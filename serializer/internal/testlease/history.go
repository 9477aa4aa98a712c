package testlease

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// History is who was inside a queue from when to when, on one clock.
type History struct {
	start time.Time

	mu    sync.Mutex
	holds []*Hold
}

// Hold is one turn. Its times are since the history began.
type Hold struct {
	Client      int
	Token       uint64
	Asked, Came time.Duration
	Went        time.Duration // when the holder left, or the queue ceased to vouch for it
}

// NewHistory begins a history now.
func NewHistory() *History { return &History{start: time.Now()} }

// Now is the time since the history began.
func (h *History) Now() time.Duration { return time.Since(h.start) }

// Asks begins the hold of a client that asks for its turn now. It is not yet inside.
func (h *History) Asks(client int) *Hold {
	return &Hold{Client: client, Asked: h.Now(), Went: math.MaxInt64}
}

// Enter notes that a client is inside.
func (h *History) Enter(hold *Hold, token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold.Token, hold.Came = token, h.Now()
	h.holds = append(h.holds, hold)
}

// Leave notes the end of a hold, or that its process was stopped or its turn revoked. The first
// of these counts.
func (h *History) Leave(hold *Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold.Went = min(hold.Went, h.Now())
}

// Len counts the holds.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holds)
}

// lock is the state of porcupine's model: who holds the queue, and the greatest token so far.
type lock struct{ holder, greatest uint64 }

// operation is an entry or a leaving.
type operation struct {
	leaves bool
	token  uint64
}

// lockModel is a lock that is taken by one at a time, in the order of tokens.
var lockModel = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		l, op := state.(lock), input.(operation)
		if op.leaves {
			return l.holder == op.token, lock{0, l.greatest}
		}
		return l.holder == 0 && op.token > l.greatest, lock{op.token, op.token}
	},
}

// Judge has porcupine look for an order of all entries and leavings in which at most one holds the
// lock. An entry lies between the request and the arrival behind the queue. A leaving lies anywhere
// after the hold has ended.
func (h *History) Judge() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var operations []porcupine.Operation
	for i, hold := range h.holds {
		operations = append(operations, porcupine.Operation{
			ClientId: hold.Client, Input: operation{false, hold.Token}, Call: int64(hold.Asked), Return: int64(hold.Came),
		})
		if hold.Went < math.MaxInt64 { // otherwise, it is still there
			operations = append(operations, porcupine.Operation{
				ClientId: len(h.holds) + i, Input: operation{true, hold.Token}, Call: int64(hold.Went), Return: math.MaxInt64,
			})
		}
	}
	if result := porcupine.CheckOperationsTimeout(lockModel, operations, time.Minute); result != porcupine.Ok {
		return fmt.Errorf("porcupine: a history of %d turns is %s; %s", len(h.holds), result, h.suspectsLocked())
	}
	return nil
}

// suspectsLocked names the first two holds, by their beginnings, of which one cannot follow the other.
func (h *History) suspectsLocked() string {
	holds := slices.Clone(h.holds)
	slices.SortFunc(holds, func(a, b *Hold) int { return cmp.Compare(a.Came, b.Came) })
	for i, hold := range holds[1:] {
		if before := holds[i]; hold.Token <= before.Token || hold.Came < before.Went {
			return fmt.Sprintf("%+v, then %+v", *before, *hold)
		}
	}
	return "no two neighbours"
}
