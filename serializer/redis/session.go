package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// session is a time in which the process may rely on its tickets.
type session struct {
	*lease.Session
	store *Store
	id    string

	subscription atomic.Pointer[redis.PubSub]

	// Store.Mu guards the rest.

	version uint64          // of the last entry of the log that was reported
	tag     string          // of that entry
	behind  bool            // an entry of the log was missed
	made    map[string]bool // whether the changes of a request in progress were reported, by its tag
}

// errOtherHistory is why a session ends when the server does not have the last change that
// the process knows.
var errOtherHistory = errors.New("the server was restarted without its last data, another one has taken over, or keys were deleted")

// errMissed is why a session ends when the log has grown beyond what it keeps meanwhile.
var errMissed = errors.New("there were more than 10,000 changes since this process had its last answer")

func (st *Store) newSession(base *lease.Session) lease.Protocol {
	return &session{Session: base, store: st, id: rand.Text(), made: make(map[string]bool)}
}

// Start implements [lease.Protocol]. It looks for the master, and begins a session there.
func (s *session) Start() error {
	st := s.store
	if err := st.servers.choose(s.Ctx); err != nil {
		return err
	}
	subscription, err := st.servers.subscribe(s.Ctx)
	if err != nil {
		return err
	}
	args, _ := s.arguments(newRequest("begin"))
	sent := lease.Uptime()
	args[3], args[4] = (sent - time.Duration(st.heard.Load())).Seconds(), st.history
	answer, err := st.servers.run(s.Ctx, st.servers.client(), args...)
	if err != nil {
		_ = subscription.Close()
		return fmt.Errorf("beginning a session: %w", err)
	}
	if answer[0] == "elsewhere" {
		_ = subscription.Close()
		return fmt.Errorf("%w: %s has %s, and has run for %s s; this process has used another server since, where others may be inside; "+
			"put the address or the data right, or, if nobody uses the old server, restart all Caddys",
			lease.ErrElsewhere, st.servers.client().Options().Addr, answer[1], answer[2])
	}
	st.history = answer[3]
	st.heard.Store(int64(lease.Uptime()))
	s.Begin(s.id+" at "+st.servers.client().Options().Addr, sent, st.TTL)
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if !s.Over {
		s.beginLocked(parseEntry(answer[1], answer[2]))
	}
	s.Go(func() { s.listen(subscription) })
	return nil
}

// pollInterval is the time from one request of a process that does nothing to the next. It is
// less than the greatest step of the script's clock, which therefore goes right, unless an
// answer takes longer than such a step.
const pollInterval = 400 * time.Millisecond

// Keep implements [lease.Protocol]: it polls until the session is over.
func (s *session) Keep() {
	for s.Ctx.Err() == nil {
		next := time.After(pollInterval)
		err := s.Renew(func() (time.Duration, error) {
			return s.store.TTL, s.send(s.Ctx, newRequest("keep"))
		})
		if err == nil {
			s.idle(next)
		}
		for err != nil && s.Ctx.Err() == nil {
			s.store.Complain(err)
			lease.Sleep(s.Ctx, lease.RetryPause)
			if !transient(err) {
				break
			}
			err = s.store.servers.choose(s.Ctx)
			if p := s.subscription.Load(); err == nil && p != nil {
				_ = p.Close() // it may be at a silent server; listen renews it
			}
		}
	}
}

// idle waits for the next poll, until something has to be asked before.
func (s *session) idle(next <-chan time.Time) {
	for needed := false; !needed; {
		select {
		case <-next:
			return
		case <-s.Ctx.Done():
			return
		case <-s.Wanted:
		}
		lease.Yield() // the next ticket may take the removal along
		s.store.Mu.Lock()
		needed = s.behind || len(s.Leaving)+len(s.Inside) > 0
		s.store.Mu.Unlock()
	}
}

// listen reports what other processes publish. Whatever it misses, the next poll reports.
func (s *session) listen(subscription *redis.PubSub) {
	for subscription != nil {
		current := subscription // the next one may be nil while this one is closed
		s.subscription.Store(current)
		stop := context.AfterFunc(s.Ctx, func() { _ = current.Close() })
		for message := range current.Channel() { // until it is closed
			version, body, _ := strings.Cut(message.Payload, "\n")
			s.report(parseEntry(version, body))
		}
		stop()
		var err error
		subscription, err = s.store.servers.subscribe(s.Ctx)
		for err != nil && s.Ctx.Err() == nil {
			s.store.Complain(fmt.Errorf("subscribing to changes: %w", err))
			lease.Sleep(s.Ctx, 5*lease.RetryPause)
			subscription, err = s.store.servers.subscribe(s.Ctx)
		}
	}
}

// Revoke implements [lease.Protocol].
func (s *session) Revoke(ctx context.Context) error { return s.send(ctx, newRequest("end")) }
