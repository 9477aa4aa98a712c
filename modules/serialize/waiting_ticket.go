package serialize

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/configuration"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// keptTicket is a ticket that does not end with the request it was taken for. The
// request waits for it up to `after`. Then the browser gets the waiting page, and the
// ticket stays in the queue until a later request of that browser claims the turn.
//
// It outlives the configuration that it was taken in, and holds a reference to the
// engine for that.
type keptTicket struct {
	queue    waitingQueue
	name     string // of the queue
	rule     serializer.Rule
	rules    *configuration.Rules // of its configuration
	engine   *engineRef
	meters   *meters
	capacity int // how many may be inside; 0 if there are readers
	hold     time.Duration
	arrived  time.Time
	lost     bool // the browser had an earlier ticket, which is gone
	request  serializer.Request
	agent    uint64 // what tells its browser from others in the queue
	age      agelist.Entry
	wait     serializer.Wait

	// As of the latest reading of the queue; 0 before.
	place    atomic.Int64  // among those that wait; 1 is the next
	token    atomic.Uint64 // the ticket's number
	estimate atomic.Int64  // nanoseconds until the turn; 0 is unknown
	paused   atomic.Bool   // the queue is

	// Guarded by the table.
	state    keptState
	id       ticketID        // once it is in the table
	kept     bool            // it is in the table
	cookie   *sentCookie     // nil once it has come back
	live     bool            // the latest page followed its place, and does not come by Refresh
	delayed  bool            // its turn has waited longer, for a browser that came just in time
	turn     serializer.Turn // nil before it has come
	refusal  error           // why it has no turn
	revoked  error           // the engine has taken the turn back
	came     time.Time       // when the turn came
	waited   time.Duration   // until then
	contact  time.Time       // when the browser was last there
	refresh  time.Duration   // when the browser will come back without JavaScript
	timer    *time.Timer     // of the turn that waits for the browser
	watchers []keptWatcher   // the one whose page was seen last is last
	claimant *visit

	waitsFor *sentCookie // its browser may be the one that refused it, so it waits with an open connection
}

type keptState uint8

const (
	keptWaiting keptState = iota
	keptReady             // its turn has come, and waits for the browser
	keptRefused           // by the queue; the browser does not know yet
	keptUsed              // the browser has claimed the turn
	keptOver              // it has left
)

// What becomes of the tickets that are kept.
const (
	keptClaimed = "claimed"  // the browser took its turn
	keptGivenUp = "given_up" // the browser stopped coming while it waited
	keptMissed  = "missed"   // the turn came, and the browser did not
	keptDenied  = "refused"  // by the queue: timeout, eviction and so on
)

var keptOutcomes = []string{keptClaimed, keptGivenUp, keptMissed, keptDenied}

var errBrowserGone = errors.New("the browser stopped coming while it waited")

// newKeptTicket takes a ticket for a request. It takes over a reference to the engine.
func (s *Handler) newKeptTicket(r *http.Request, v *visit, queue waitingQueue, engine *engineRef) *keptTicket {
	described := v.describeRequest(r.Context())
	// Clones, so that the rest of the request does not stay in memory.
	described.Host, described.Path, described.ClientIP = strings.Clone(described.Host), strings.Clone(described.Path), strings.Clone(described.ClientIP)
	var a serializer.Arrival
	s.describe(&a, r, v.queue)
	k := &keptTicket{
		queue: queue, rule: a.Rule, rules: s.rules, name: v.queue, engine: engine, meters: s.meters,
		hold: time.Duration(*s.WaitingPage.Hold), arrived: time.Now(),
		request: described, agent: agentHash(queue, v.clientIP, r.UserAgent()),
	}
	if len(s.SharedMethods) == 0 {
		k.capacity = s.Concurrency
	}
	k.meters.startWait(&k.age, v.queue, k.arrived)
	a.Requester, a.Revoke = k, k.revoke
	k.wait = engine.Join(a, func(turn serializer.Turn, err error) { keptTickets.settle(k, turn, err) })
	return k
}

// Request implements [serializer.Requester].
func (k *keptTicket) Request() serializer.Request {
	if v := keptTickets.claimant(k); v != nil {
		return v.Request()
	}
	return k.request
}

// revoke takes the turn back from whoever has it.
func (k *keptTicket) revoke(cause error) {
	if v := keptTickets.revoke(k, cause); v != nil {
		v.revoke(cause)
	}
}

// release drops the reference to the engine.
func (k *keptTicket) release() { _ = k.engine.release() }

// end ends the ticket in the engine's queue. was is its state before it was over.
func (k *keptTicket) end(was keptState) {
	switch was {
	case keptWaiting:
		k.wait.GiveUp(errBrowserGone) // settle does the rest
	case keptReady:
		k.turn.Leave()
		k.meters.endIdle(&k.age)
		k.meters.idled(time.Since(k.came))
		k.meters.holds.add(time.Since(k.came)) // nobody else was inside meanwhile
		k.release()
	}
}

// Interface guards
var _ serializer.Requester = (*keptTicket)(nil)
