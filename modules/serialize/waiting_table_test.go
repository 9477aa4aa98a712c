package serialize

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Bug: after one browser had closed its page at once, no other one of its address and
// User-Agent got the page for ten minutes. One that refuses cookies still waits with an
// open connection when it comes again.
func TestWaitingMissedCookie(t *testing.T) {
	s, _ := keepMany(t, MemoryEngine{}, 0)
	for _, c := range []struct {
		name     string
		arrivals []time.Duration // since the page was given that never came back; it was to come after 5 s
		want     []bool          // which get the page
	}{
		{"refuses cookies, comes by Refresh", []time.Duration{5100 * time.Millisecond}, []bool{false}},
		{"refuses cookies, comes late", []time.Duration{time.Minute}, []bool{false}},
		{"refuses cookies, comes early", []time.Duration{time.Second}, []bool{false}},
		{"came before", []time.Duration{-time.Second}, []bool{true}},
		{"one of many comes by Refresh", []time.Duration{5 * time.Second, time.Second, 2 * time.Second, time.Minute}, []bool{false, true, true, true}},
		{"all come later", []time.Duration{18 * time.Second, 18 * time.Second, 18 * time.Second}, []bool{false, true, true}},
		{"long ago", []time.Duration{missedTime + time.Minute}, []bool{true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ip, given := "192.0.2.1 "+c.name, time.Now().Add(-2*time.Minute)
			if c.arrivals[0] > missedTime {
				given = time.Now().Add(-missedTime - 2*time.Minute)
			}
			missed, changes := s.arriveFrom(t, ip)
			if !keptTickets.keep(missed, changes) {
				t.Fatal("the first one does not get the page")
			}
			keptTickets.expect(missed, 5*time.Second)
			missed.stayAway(given)
			var tickets []*keptTicket
			for i, after := range c.arrivals {
				k, changes := s.arriveFrom(t, ip)
				k.arrived = given.Add(after)
				tickets = append(tickets, k)
				for range 2 { // it asks again
					if kept := keptTickets.keep(k, changes); kept != c.want[i] {
						t.Errorf("%v: gets the page: %t; expected %t", after, kept, c.want[i])
					}
					if c.want[i] {
						break
					}
				}
				keptTickets.find(k.id, k.queue)
			}
			for _, k := range tickets {
				keptTickets.abandon(k)
			}
		})
	}
	leaveAll(s, nil)
}

// stayAway moves the last contact of the ticket's browser far into the past, and
// waits until its place is given up.
func (k *keptTicket) stayAway(since time.Time) {
	keptTickets.mu.Lock()
	k.contact, k.hold = since, 0
	c := k.cookie
	c.given, c.back = since, since.Add(k.refresh)
	keptTickets.mu.Unlock()
	for over := false; !over; runtime.Gosched() {
		time.Sleep(time.Millisecond)
		keptTickets.mu.Lock()
		if over = k.state == keptOver; over {
			c.until = since.Add(missedTime)
		}
		keptTickets.mu.Unlock()
	}
}

// Bug: a turn waited for a page that had been live, and was closed, until it would have
// come again without JavaScript: up to a third of hold.
func TestWaitingLivePageIsClosed(t *testing.T) {
	s, tickets := keepMany(t, MemoryEngine{}, 1)
	k := tickets[0]
	window := func() time.Duration {
		keptTickets.mu.Lock()
		defer keptTickets.mu.Unlock()
		return k.windowLocked(k.contact)
	}
	keptTickets.expect(k, 20*time.Second)
	if w := window(); w != 20*time.Second+claimGrace {
		t.Errorf("without JavaScript the turn waits %v", w)
	}
	keptTickets.unwatch(k, keptTickets.watch(k, time.Now()))
	if w := window(); w != claimWindow {
		t.Errorf("after a live page was closed the turn waits %v; expected %v", w, claimWindow)
	}
	keptTickets.expect(k, 20*time.Second) // it got a page again, which is not live yet
	if w := window(); w != 20*time.Second+claimGrace {
		t.Errorf("after another page the turn waits %v", w)
	}
	leaveAll(s, tickets)
}

// Bug: in a process that was exiting, turns waited for browsers that could not come, and
// further browsers got the page.
func TestWaitingPlacesEndWithTheProcess(t *testing.T) {
	for _, module := range []EngineModule{MemoryEngine{}, FileEngine{}} {
		s, _ := keepMany(t, module, 3)
		t.Cleanup(func() { keptTickets.closed = false })
		keptTickets.close()
		for end := time.Now().Add(time.Minute); s.meters.counts.waiting.Load() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d still wait", s.meters.counts.waiting.Load())
			}
		}
		k, changes := s.arriveFrom(t, "192.0.2.1")
		if keptTickets.keep(k, changes) {
			t.Error("a browser gets the page of a process that is exiting")
		}
		keptTickets.closed = false
		leaveAll(s, []*keptTicket{k})
	}
}

// A reload of the configuration keeps all places.
func TestWaitingPlacesOutliveTheServer(t *testing.T) {
	s, tickets := keepMany(t, MemoryEngine{}, 1)
	hold := caddy.Duration(time.Hour)
	page := &WaitingPage{Hold: &hold, stop: make(chan struct{})}
	page.shutDown()
	if found, _ := keptTickets.find(tickets[0].id, tickets[0].queue); found == nil {
		t.Error("the place is gone")
	}
	leaveAll(s, tickets)
}

// Bug: the tab that took the turn was the one that had renewed its stream last, though
// nobody looked at it.
func TestWaitingTabSeenLast(t *testing.T) {
	s, tickets := keepMany(t, MemoryEngine{}, 1)
	watch := func(header string) chan struct{} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(liveHeader, header)
		if !isLive(r) {
			t.Errorf("%q is not a live page", header)
		}
		return keptTickets.watch(tickets[0], liveSeen(r))
	}
	var watchers []chan struct{}
	for _, header := range []string{"live 7", "live 0", "live 5", "live x", "live 1000000000", "live 99999999999999"} {
		watchers = append(watchers, watch(header))
	}
	for i, w := range watchers {
		if _, first := keptTickets.watched(tickets[0], w); first != (i == 3) {
			t.Errorf("tab %d is to take the turn: %t", i, first)
		}
	}
	keptTickets.unwatch(tickets[0], watchers[3])
	if _, first := keptTickets.watched(tickets[0], watchers[1]); !first {
		t.Error("the visible tab does not take the turn")
	}
	leaveAll(s, tickets)
}

// awaitState waits until a ticket is in a state.
func (k *keptTicket) awaitState(t *testing.T, want keptState) {
	t.Helper()
	for end := time.Now().Add(time.Minute); keptTickets.stateOf(k) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the ticket's state is %d; expected %d", keptTickets.stateOf(k), want)
		}
	}
}

// newNavigation is a request of a browser, and its visit.
func (s *Handler) newNavigation() (*http.Request, *visit) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	v := &visit{handler: s, queue: s.queue}
	v.openHold(r)
	return r, v
}

// Bug: a request that waited for its first page lost its turn if it could not take it
// within two seconds, because its process was stopped. Before that was noticed, it
// waited for ever.
func TestWaitingTurnIsNotMissedBeforeThePage(t *testing.T) {
	t.Parallel()
	s, _, leave := keepManyBehind(t, MemoryEngine{}, 0)
	k, _ := s.arriveFrom(t, "192.0.2.1")
	leave()
	k.awaitState(t, keptReady)
	time.Sleep(claimWindow + 500*time.Millisecond) // while the request's goroutine does not run
	r, v := s.newNavigation()
	if err := v.awaitTurn(httptest.NewRecorder(), r, k); err != nil {
		t.Fatalf("it has no turn: %v", err)
	}
	v.turn.Leave()
	v.close()
}

// keepReady keeps a ticket until its turn has come.
func keepReady(t *testing.T) (*Handler, *keptTicket) {
	t.Helper()
	s, tickets, leave := keepManyBehind(t, MemoryEngine{}, 1)
	leave()
	tickets[0].awaitState(t, keptReady)
	return s, tickets[0]
}

// Bug: a turn that came between the decision for the page and the page itself waited for a
// second only. A request that stood still for longer lost it.
func TestWaitingTurnComesBeforeThePage(t *testing.T) {
	t.Parallel()
	s, k := keepReady(t)
	time.Sleep(claimGrace + 500*time.Millisecond) // while the request's goroutine does not run
	_, v := s.newNavigation()
	if _, err := v.takeTurnOrPlaceOf(k); err != nil {
		t.Fatalf("it has no turn: %v", err)
	}
	keptTickets.forget(k)
	v.turn.Leave()
	v.close()
}

// Bug: a second tab gave up a ticket that the first had claimed a moment ago. Then the
// ticket seemed to wait still, and reloads got the page until the first tab had its
// answer.
func TestWaitingClaimedTicketIsNotGivenUp(t *testing.T) {
	t.Parallel()
	s, k := keepReady(t)
	_, v := s.newNavigation()
	if err := v.takeTurnOf(k); err != nil {
		t.Fatal(err)
	}
	keptTickets.giveUp(k)
	if found, used := keptTickets.find(k.id, k.queue); found != nil || !used {
		t.Errorf("found %v, used: %t; expected that its turn is used", found, used)
	}
	keptTickets.forget(k)
	v.turn.Leave()
	v.close()
}

// Bug: if the turn came after it was looked for, and before the page was sent, the
// browser got the page. The turn then waited for as long as an earlier page needed. One
// that got its first page had a second to come back, and was told to come in five.
func TestWaitingTurnComesWithThePage(t *testing.T) {
	t.Parallel()
	s, tickets, leave := keepManyBehind(t, MemoryEngine{}, 1)
	k := tickets[0]
	if !keptTickets.expect(k, 5*time.Second) {
		t.Error("while it waits, there is no page")
	}
	leave()
	k.awaitState(t, keptReady)
	if keptTickets.expect(k, 5*time.Second) {
		t.Error("its turn has come, and it gets the page")
	}
	_, v := s.newNavigation()
	if _, err := v.takeTurnOrPlaceOf(k); err != nil {
		t.Errorf("it has no turn: %v", err)
	}
	_, second := s.newNavigation()
	if _, err := second.takeTurnOrPlaceOf(k); !errors.Is(err, errNoTicket) {
		t.Errorf("the second tab is told %v; expected that the ticket has ended", err)
	}
	keptTickets.forget(k)
	v.turn.Leave()
	v.close()
}

// Bug: browsers of one address got their pages one by one, each when the cookie of the
// last had come back. Only one that may be a browser that has its page already must wait.
func TestWaitingPagesOfOneAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		other   bool          // the next one looks different
		arrived time.Duration // when it arrived, since the page was given that is to come back after 5 s
		now     time.Duration
		want    bool // it gets the page
	}{
		{"another browser", true, 0, 0, true},
		{"arrived before the page was given", false, -time.Second, 0, true},
		{"looks the same", false, time.Second, 2 * time.Second, false},
		{"looks the same, while the first may come", false, time.Second, 5900 * time.Millisecond, false},
		{"comes when the first should come", false, 5 * time.Second, 7 * time.Second, false},
		{"comes instead of the first", false, time.Second, 7 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := keepMany(t, MemoryEngine{}, 0)
			first := s.getsPage(t)
			next, changes := s.arriveFrom(t, "192.0.2.1")
			keptTickets.mu.Lock()
			given := time.Now().Add(-c.now)
			first.contact, first.cookie.given, first.cookie.back = given, given, given.Add(5*time.Second)
			next.arrived = given.Add(c.arrived)
			if c.other {
				next.agent++
			}
			keptTickets.mu.Unlock()
			if kept := keptTickets.keep(next, changes); kept != c.want {
				t.Errorf("the next one gets the page: %t; expected %t", kept, c.want)
			}
			if found, _ := keptTickets.find(first.id, first.queue); found == nil {
				t.Error("the first one has lost its place")
			}
			keptTickets.mu.Lock()
			if len(keptTickets.missed.byAgent[first.agent]) > 0 {
				t.Error("its cookie has come back, and is still missed")
			}
			keptTickets.mu.Unlock()
			if !c.want && !keptTickets.keep(next, changes) {
				t.Error("the next one does not get the page when the cookie has come back")
			}
			leaveAll(s, []*keptTicket{first, next})
		})
	}
}

// getsPage gives a browser the page, which is to come again after five seconds.
func (s *Handler) getsPage(t *testing.T) *keptTicket {
	t.Helper()
	k, changes := s.arriveFrom(t, "192.0.2.1")
	k.arrived = time.Now().Add(-time.Minute)
	if !keptTickets.keep(k, changes) || !keptTickets.expect(k, 5*time.Second) {
		t.Fatal("a browser does not get the page")
	}
	return k
}

// A program that drops cookies holds few places without a connection, whatever it calls
// itself. Browsers of its address get the page again when cookies come back.
func TestWaitingCookiesDropped(t *testing.T) {
	s, _ := keepMany(t, MemoryEngine{}, 0)
	var tickets []*keptTicket
	for range maxUnproven {
		tickets = append(tickets, s.getsPage(t))
	}
	next, changes := s.arriveFrom(t, "192.0.2.1")
	next.agent++
	if keptTickets.keep(next, changes) {
		t.Error("one more gets the page")
	}
	other, otherChanges := s.arriveFrom(t, "192.0.2.2")
	if !keptTickets.keep(other, otherChanges) {
		t.Error("a browser of another address does not get the page")
	}
	keptTickets.find(tickets[0].id, tickets[0].queue)
	if !keptTickets.keep(next, changes) {
		t.Error("it does not get the page after a cookie has come back")
	}
	leaveAll(s, append(tickets, next, other))
	keptTickets.mu.Lock()
	defer keptTickets.mu.Unlock()
	for _, k := range tickets {
		if left := keptTickets.unproven[k.client()]; len(left) > 0 {
			t.Fatalf("%d of them are still in the table", len(left))
		}
	}
}

// Bug: the turns of places whose browsers had never come back each waited a second. A
// program that dropped cookies stopped a queue for a minute.
func TestWaitingTurnOfMissedCookie(t *testing.T) {
	s, _ := keepMany(t, MemoryEngine{}, 0)
	k := s.getsPage(t)
	window := func(since time.Duration) time.Duration {
		keptTickets.mu.Lock()
		defer keptTickets.mu.Unlock()
		return k.windowLocked(k.contact.Add(since))
	}
	if w := window(2 * time.Second); w != 3*time.Second+claimGrace {
		t.Errorf("before it should come back, the turn waits %v", w)
	}
	if w := window(7 * time.Second); w != 0 {
		t.Errorf("when it should have come back, the turn waits %v", w)
	}
	keptTickets.find(k.id, k.queue)
	if w := window(7 * time.Second); w != claimGrace {
		t.Errorf("for one that has come back before, the turn waits %v", w)
	}
	leaveAll(s, []*keptTicket{k})
}

// Bug: cookies that came late still counted among those that are missed.
func TestWaitingMissedCookieComesLate(t *testing.T) {
	s, _ := keepMany(t, MemoryEngine{}, 0)
	tickets := []*keptTicket{s.getsPage(t), s.getsPage(t)}
	keptTickets.mu.Lock()
	before := len(keptTickets.missed.oldest)
	for _, k := range tickets {
		keptTickets.rememberLocked(k, time.Now())
	}
	missed := len(keptTickets.missed.oldest)
	keptTickets.mu.Unlock()
	for _, k := range slices.Backward(tickets) {
		keptTickets.find(k.id, k.queue)
	}
	keptTickets.mu.Lock()
	after := len(keptTickets.missed.oldest)
	keptTickets.mu.Unlock()
	if missed != before+2 || after != before {
		t.Errorf("%d, %d and %d cookies are missed; expected two more, and then as many as before", before, missed, after)
	}
	leaveAll(s, tickets)
}

// Several browsers of one address that look alike refuse cookies. Each waits with an open
// connection when it comes again, and no other one.
func TestWaitingCookiesRefusedBySeveral(t *testing.T) {
	s, _ := keepMany(t, MemoryEngine{}, 0)
	given := time.Now().Add(-time.Minute)
	const n = 3
	var tickets []*keptTicket
	for range n {
		tickets = append(tickets, s.getsPage(t))
	}
	for _, k := range tickets {
		k.stayAway(given)
	}
	tickets = nil
	for i := range n + 1 {
		k, changes := s.arriveFrom(t, "192.0.2.1")
		tickets = append(tickets, k)
		k.arrived = given.Add(5 * time.Second)
		if i == n {
			k.arrived = given.Add(time.Second)
		}
		if kept := keptTickets.keep(k, changes); kept != (i == n) {
			t.Errorf("browser %d gets the page: %t", i, kept)
		}
	}
	leaveAll(s, tickets)
}

// Bug: a browser that refuses cookies had a place for each time that it was reloaded
// while it waited with an open connection.
func TestWaitingCookiesRefusedAgain(t *testing.T) {
	s, _ := keepMany(t, MemoryEngine{}, 0)
	k, changes := s.arriveFrom(t, "192.0.2.1")
	if !keptTickets.keep(k, changes) || !keptTickets.expect(k, 5*time.Second) {
		t.Fatal("it does not get the page")
	}
	k.stayAway(time.Now().Add(-time.Minute))
	for range 3 {
		again, changes := s.arriveFrom(t, "192.0.2.1")
		if keptTickets.keep(again, changes) {
			t.Error("it gets a second page")
		}
		keptTickets.abandon(again) // it is reloaded
	}
	leaveAll(s, nil)
}
