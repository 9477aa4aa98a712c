package lease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Session is the lifetime of one lease. All tickets that the process takes in this time
// belong to it. When it ends, the process forgets the tickets of other processes. A protocol
// embeds it. Store.Mu guards all fields but Ctx, Wanted and Deadline.
type Session struct {
	*Deadline // nil until Begin

	Ctx    context.Context // done when the session is over
	Wanted chan struct{}   // has a message if something has to be asked of the servers

	// Tickets are those that were reported and are not out, by Ticket.Key.
	Tickets map[string]*serializer.Ticket
	Local   int  // own tickets that have joined and were not removed
	Remote  int  // remote tickets among Tickets
	Over    bool // nothing is reported any more

	// Leaving are keys of own tickets to be taken out, and Inside are own tickets to be marked as
	// inside, by Ticket.Key.
	Leaving map[string]bool
	Inside  map[string]*serializer.Ticket

	// Sent are the tickets of the Append in progress that are not reported yet, by the IDs of Send.
	Sent map[string]*serializer.Ticket

	store    *Store
	protocol Protocol
	name     string // for people
	ref      uint64 // of its tickets
	end      context.CancelCauseFunc
}

func newSession(st *Store) *Session {
	st.last++
	s := &Session{
		store: st, ref: st.last, Wanted: make(chan struct{}, 1), Tickets: make(map[string]*serializer.Ticket),
		Leaving: make(map[string]bool), Inside: make(map[string]*serializer.Ticket), Sent: make(map[string]*serializer.Ticket),
	}
	s.Ctx, s.end = context.WithCancelCause(st.Ctx)
	s.protocol = st.New(s)
	return s
}

// Begin notes that the servers have granted a lease, which was requested at the moment sent
// of [Uptime]. The name is for people.
func (s *Session) Begin(name string, sent, ttl time.Duration) {
	s.name = name
	s.Deadline = NewDeadline(Uptime, sent, ttl, func(cause error) { s.store.lose(s, cause) })
}

// Go calls a function in a goroutine, which must end soon after the session is over.
func (s *Session) Go(f func()) { s.store.running.Go(f) }

// Wake has the protocol ask something of the servers soon.
func (s *Session) Wake() {
	select {
	case s.Wanted <- struct{}{}:
	default: // the protocol has been woken already
	}
}

// forgetIfLeftLocked ends a lost lease once its last holder has left, so that no process, this
// one included, needs to wait until it expires. Servers that were silent may have kept it for
// any time. So ending it is tried again when they have granted the next lease.
func (s *Session) forgetIfLeftLocked() {
	if s.Local > 0 {
		return
	}
	delete(s.store.sessions, s.ref)
	go func() {
		for ctx := s.store.Ctx; s.revoke(ctx, 0) != nil && ctx.Err() == nil; {
			_ = s.store.AwaitChange(ctx, func() bool { return s.store.current != nil })
		}
	}()
}

// revoke ends the lease, on which nothing relies any more. It makes at most that many tries.
// If tries is 0, it goes on for as long as a lease can last while the servers run.
func (s *Session) revoke(ctx context.Context, tries int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.store.TTL)
	defer cancel()
	for try := 1; ; try++ {
		next := time.After(time.Duration(min(try, 5)) * RetryPause)
		err := s.protocol.Revoke(ctx)
		if err == nil || try == tries || ctx.Err() != nil {
			return err
		}
		<-next // at once, if the try took long
	}
}

// Send notes tickets that are about to be sent, each under an ID by which the protocol will
// recognize it. It makes them tickets of the session, and returns their records; see [Record].
func (s *Session) Send(tickets []*serializer.Ticket, id func(i int) string) (records []string) {
	now := time.Now()
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	for i, t := range tickets {
		t.Ref, t.Owner, t.Arrived = s.ref, s.store.Owner, now
		s.Sent[id(i)] = t
		records = append(records, Record(t, 0))
	}
	return records
}

// Abandon gives up tickets that were sent and are not reported, and counts them. If the
// servers still make them, they are taken out.
func (s *Session) Abandon() (n int) {
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	n = len(s.Sent)
	clear(s.Sent)
	return n
}

// JoinedLocked reports a ticket of this session, which was sent under an ID. The ticket is taken
// out if its caller has gone, or if it was abandoned.
func (s *Session) JoinedLocked(id, key string, number uint64) {
	t := s.Sent[id]
	delete(s.Sent, id)
	if t != nil {
		t.Key, t.Number = key, number
	}
	if t == nil || !s.store.events.Joined(t) {
		s.LeaveLocked(key)
		return
	}
	s.Tickets[key] = t
	s.Local++
}

// AppearedLocked reports a ticket of another process.
func (s *Session) AppearedLocked(t *serializer.Ticket) {
	s.Tickets[t.Key] = t
	s.Remote++
	s.store.events.Appeared(t)
}

// StateLocked reports the state of a ticket, which is made of [IsInside] and [IsAsked].
func (s *Session) StateLocked(key string, state uint64) {
	if t := s.Tickets[key]; t != nil && !t.Local() {
		atomic.StoreUint64(&t.Ref, state)
	}
	if state&IsAsked != 0 {
		s.AskedLocked(key)
	}
}

// AskedLocked reports that the owner of a ticket was asked to evict it. An owner that has obeyed
// marks the ticket as inside, again: one that waited will be out.
func (s *Session) AskedLocked(key string) {
	switch t := s.Tickets[key]; {
	case t == nil:
	case t.Local():
		s.store.events.Evict(t.Queue, t.Number)
		s.markLocked(t)
	default:
		atomic.OrUint64(&t.Ref, IsAsked)
	}
}

// markLocked has the protocol mark an own ticket as inside soon, unless it is out.
func (s *Session) markLocked(t *serializer.Ticket) {
	if s.Tickets[t.Key] == t {
		s.Inside[t.Key] = t
		s.Wake()
	}
}

// OutLocked reports that a ticket is out, if it is known. A local ticket was taken out by another
// process.
func (s *Session) OutLocked(key string) {
	t := s.Tickets[key]
	s.StateLocked(key, 0)
	delete(s.Tickets, key)
	switch {
	case t == nil:
	case t.Local():
		s.store.events.Removed(t)
	default:
		s.Remote--
		s.store.events.Vanished(t)
	}
}

// OnlyLocked reports that all other tickets than those with the given keys are out, and all
// other pauses over. Own tickets come first, so that none of them enters.
func (s *Session) OnlyLocked(keys, pauses map[string]bool) {
	for _, local := range []bool{true, false} {
		for key, t := range s.Tickets {
			if t.Local() == local && !keys[key] {
				s.OutLocked(key)
			}
		}
	}
	for name := range s.store.pauses {
		if !pauses[name] {
			s.PausedLocked(name, time.Time{})
		}
	}
}

// PausedLocked reports the end of a pause, unless it is known. The zero time means that the
// pause is over.
func (s *Session) PausedLocked(name string, until time.Time) {
	pauses := s.store.pauses
	if pauses[name].Equal(until) {
		return
	}
	if pauses[name] = until; until.IsZero() {
		delete(pauses, name)
	}
	s.store.events.Paused(name, until)
}

// LeaveLocked has the protocol take tickets out soon. Keys are never used again, so that may
// happen at any time, and more than once.
func (s *Session) LeaveLocked(keys ...string) {
	for _, key := range keys {
		s.Leaving[key] = true
	}
	if len(s.Leaving) > 0 {
		s.Wake()
	}
}

// Pending is what a request carries out besides: keys of tickets to be taken out, and tickets to
// be marked as inside.
type Pending struct {
	Leaving []string
	Inside  []*serializer.Ticket
}

// TakeLocked returns what is pending, and forgets it: at most n tickets.
func (s *Session) TakeLocked(n int) (p Pending) {
	for key := range s.Leaving {
		if len(p.Leaving) >= n {
			break
		}
		delete(s.Leaving, key)
		p.Leaving = append(p.Leaving, key)
	}
	for key, t := range s.Inside {
		if len(p.Leaving)+len(p.Inside) >= n {
			break
		}
		delete(s.Inside, key)
		p.Inside = append(p.Inside, t)
	}
	if len(s.Leaving)+len(s.Inside) > 0 {
		s.Wake()
	}
	return p
}

// Again keeps for another request what one that has failed was to carry out.
func (s *Session) Again(p Pending) {
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	s.LeaveLocked(p.Leaving...)
	for _, t := range p.Inside {
		s.markLocked(t)
	}
}
