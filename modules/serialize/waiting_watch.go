package serialize

import (
	"slices"
	"time"
)

// keptWatcher is a request that is notified of a ticket's changes.
type keptWatcher struct {
	changed chan struct{}
	seen    time.Time // when the browser's user last saw the page
}

// watch returns a channel that gets a message when the ticket changes, until unwatch.
// While somebody watches, the browser is there. seen is when its user last saw the page.
func (t *keptTable) watch(k *keptTicket, seen time.Time) chan struct{} {
	w := make(chan struct{}, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	k.watchers = append(k.watchers, keptWatcher{w, seen})
	slices.SortStableFunc(k.watchers, func(a, b keptWatcher) int { return a.seen.Compare(b.seen) })
	k.live = k.kept // a request that waits for its first page watches, too
	if k.state != keptWaiting {
		w <- struct{}{}
	}
	if k.state == keptReady && !k.delayed && k.timer != nil {
		k.delayed = true // once: however often it comes back, the others wait
		k.timer.Reset(claimWindow)
	}
	return w
}

// passOnDelay is how long the other tabs of a browser wait after the one that was to
// claim the turn has closed its stream. It also closes the stream when it claims the
// turn.
const passOnDelay = 500 * time.Millisecond

func (t *keptTable) unwatch(k *keptTicket, w chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unwatchLocked(k, w)
	if k.state == keptReady && len(k.watchers) > 0 {
		time.AfterFunc(passOnDelay, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			k.wakeLocked()
		})
	}
}

func (t *keptTable) unwatchLocked(k *keptTicket, w chan struct{}) {
	k.watchers = slices.DeleteFunc(k.watchers, func(o keptWatcher) bool { return o.changed == w })
	k.contact = time.Now()
}

// watched returns the ticket's state, and whether a watcher is the one to claim the turn:
// the one whose page was seen last.
func (t *keptTable) watched(k *keptTicket, w chan struct{}) (state keptState, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return k.state, len(k.watchers) > 0 && k.watchers[len(k.watchers)-1].changed == w
}

// wakeLocked notifies all watchers of a change.
func (k *keptTicket) wakeLocked() {
	for _, w := range k.watchers {
		select {
		case w.changed <- struct{}{}:
		default: // it has a message already
		}
	}
}
