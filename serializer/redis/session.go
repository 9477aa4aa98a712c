package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// session is a time in which the process may rely on its tickets. What it knows about
// others ends with it, too.
type session struct {
	store  *Store
	id     string
	serial uint64 // Ref of its tickets
	lease  *lease.Session
	ctx    context.Context // done when the session is over
	end    context.CancelCauseFunc
	wanted chan struct{} // asks for a poll

	// Store.mu guards the rest.

	over     bool
	version  uint64 // of the last entry of the log that was reported
	tag      string
	tickets  map[uint64]*serializer.Ticket   // that were reported and are not out, by number
	sent     map[string][]*serializer.Ticket // that are on their way, by the tag of the request
	local    int                             // tickets that have joined and were not removed
	removals []uint64                        // numbers of tickets to be taken out
	behind   bool                            // an entry of the log was missed
}

var (
	// errSession means that the session is over, and a request was not carried out.
	errSession = errors.New("the session is over")

	// errOtherHistory is why a session ends when the server does not have the last change
	// that the process knows.
	errOtherHistory = errors.New("the server was restarted without its last data, another one has taken over, or keys were deleted")
)

// pollInterval is the time between two requests of a process that does nothing. It is less
// than the greatest step of the script's clock, which therefore goes right.
const pollInterval = 400 * time.Millisecond

// run keeps a session until the store is closed.
func (st *Store) run() {
	for tries := 1; st.ctx.Err() == nil; tries++ {
		s, err := st.begin()
		if err == nil {
			s.keep()
			tries = 0
			continue
		}
		// A connection may break at this moment, so a single failure means little.
		if tries >= 3 || !transient(err) || errors.Is(err, context.DeadlineExceeded) {
			if st.current.Set(nil, err) && st.ctx.Err() == nil {
				st.log.Warn("Redis cannot be used; requests are refused until it can", "addresses", st.where, "namespace", st.keys.namespace, "error", err)
			}
		}
		lease.Sleep(st.ctx, 4*lease.RetryPause)
	}
}

// begin looks for the master, and begins a session there.
func (st *Store) begin() (*session, error) {
	subscription, err := st.servers.subscribeMaster(st.ctx)
	if err != nil {
		return nil, err
	}
	s := &session{
		store: st, id: rand.Text(), wanted: make(chan struct{}, 1),
		tickets: make(map[uint64]*serializer.Ticket), sent: make(map[string][]*serializer.Ticket),
	}
	s.ctx, s.end = context.WithCancelCause(st.ctx)
	s.lease = lease.Begin(nil, lease.Uptime(), st.ttl, s.lose)
	if err := s.start(); err != nil {
		_ = subscription.Close()
		s.lease.End(err)
		return nil, fmt.Errorf("beginning a session: %w", err)
	}
	st.running.Go(func() { s.listen(subscription) })
	return s, nil
}

// start begins the session on the server, and makes it the one that tickets are taken in.
func (s *session) start() error {
	st := s.store
	args, _ := s.arguments(newRequest("begin"))
	answer, err := st.servers.run(s.ctx, args...)
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.over || !s.lease.Stands() {
		return errSession
	}
	st.serial++
	s.serial = st.serial
	s.beginLocked(parseEntry(answer[1], answer[2]))
	st.sessions[s.serial] = s
	st.current.Set(s, nil)
	go st.log.Info("began a session in Redis", "address", st.servers.client().Options().Addr, "namespace", st.keys.namespace, "session", s.id, "ttl", st.ttl)
	return nil
}

// keep polls until the session is over.
func (s *session) keep() {
	for s.ctx.Err() == nil {
		err := s.lease.Renew(func() (time.Duration, error) {
			_, err := s.send(s.ctx, newRequest("keep"))
			return s.store.ttl, err
		})
		if err == nil {
			s.idle()
			continue
		}
		s.store.complain(err)
		lease.Sleep(s.ctx, lease.RetryPause)
		if transient(err) {
			_ = s.store.servers.choose(s.ctx)
		}
	}
}

// idle waits for the next poll. A caller that has just left may queue again at once: then
// its next ticket takes the removal along, and no poll is needed.
func (s *session) idle() {
	passed := time.After(pollInterval)
	for needed := false; !needed; {
		select {
		case <-passed:
			return
		case <-s.ctx.Done():
			return
		case <-s.wanted:
		}
		for n, begun := 0, time.Now(); n < 8 || time.Since(begun) < 30*time.Microsecond; n++ {
			runtime.Gosched()
		}
		s.store.mu.Lock()
		needed = s.behind || len(s.removals) > 0
		s.store.mu.Unlock()
	}
}

// silence is how long nothing may be published before the subscription is renewed, because
// the connection may be gone.
const silence = 30 * time.Second

// listen reports what others publish. Whatever it misses, the next poll reports.
func (s *session) listen(subscription *redis.PubSub) {
	for subscription != nil {
		s.receive(subscription)
		var err error
		subscription, err = s.store.servers.subscribe(s.ctx)
		for err != nil && s.ctx.Err() == nil {
			s.store.complain(fmt.Errorf("subscribing to changes: %w", err))
			lease.Sleep(s.ctx, 5*lease.RetryPause)
			subscription, err = s.store.servers.subscribe(s.ctx)
		}
	}
}

// receive reports what others publish, until the connection or the session is over.
func (s *session) receive(subscription *redis.PubSub) {
	end := func() { _ = subscription.Close() }
	defer end()
	defer context.AfterFunc(s.ctx, end)()
	for {
		message, err := subscription.ReceiveTimeout(s.ctx, silence)
		if err != nil {
			return
		}
		if m, ok := message.(*redis.Message); ok && m.Payload != "" {
			version, body, _ := strings.Cut(m.Payload, "\n")
			s.report(parseEntry(version, body))
		}
	}
}

// lose ends the session when it can no longer be relied on.
func (s *session) lose(cause error) {
	st, err := s.store, fmt.Errorf("%w: session %s: %w", serializer.ErrLost, s.id, cause)
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.over {
		return // the store is closed
	}
	s.over = true
	s.end(err)
	if st.current.Get() == s {
		st.current.Set(nil, nil)
	}
	if s.serial > 0 {
		st.events.Lost(err)
		s.forgetIfLeftLocked()
	}
}

// forgetIfLeftLocked ends a lost session on the server once its last holder has left.
func (s *session) forgetIfLeftLocked() {
	if s.local == 0 {
		delete(s.store.sessions, s.serial)
		go lease.Forget(s.store.ctx, s.store.ttl, s.revoke)
	}
}

// revoke ends the session on the server, with all its tickets.
func (s *session) revoke(ctx context.Context) error {
	_, err := s.send(ctx, newRequest("end"))
	return err
}
