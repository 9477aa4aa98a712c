package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// session is the lifetime of one lease. All tickets that the process takes in this time
// belong to it, and what the process knows about others ends with it.
type session struct {
	store     *Store
	id        uint64 // a number of its namespace, so no two sessions have the same
	namespace int64
	epoch     int64
	timeline  string // of the server's history
	channel   string // of notifications
	durable   bool   // the server must be asked to commit to its disk
	lease     *lease.Session
	ctx       context.Context // done when the session is over
	end       context.CancelCauseFunc
	wake      chan struct{}         // has a message if there is something to do
	trouble   atomic.Pointer[error] // why the last round failed; nil if it did not

	renewing *pgx.Conn // used by renew alone; nil while there is none

	// round and its helpers alone use these.

	working   *pgx.Conn // nil while there is none
	listening bool
	version   int64     // everything up to this one was reported
	position  int64     // of the server in its log
	trimmed   int64     // rows of tickets that were out by then are deleted
	counted   time.Time // when the tickets were last counted
	endsAt    time.Time // when a round has last read the ends of leases and pauses
	due       time.Time // when the next lease or pause ends
	changedAt time.Time // when something was last reported, or done

	// Store.mu guards the rest.

	over     bool
	reported bool
	tickets  map[uint64]*serializer.Ticket // that were reported and are not out, by number
	remote   int                           // how many of these are of others
	local    int                           // own tickets that have joined and were not removed
	serial   int64                         // of the last ticket
	sent     *batch                        // tickets on their way; nil if there are none
	leaving  map[uint64]bool               // numbers of own tickets to be taken out
	changes  []*change                     // to be carried out
}

// run keeps a session until the store is closed.
func (st *Store) run() {
	for tries := 1; st.ctx.Err() == nil; tries++ {
		s, err := st.begin()
		pause := 4 * lease.RetryPause
		closed, isClosed := errors.AsType[*notOpenError](err)
		switch {
		case err == nil:
			s.lease.Keep(s.ctx, st.ttl, s.renew)
			discard(s.renewing)
			tries, pause = 0, 0
		case isClosed:
			pause = closed.remaining
		case tries >= 3 || !transient(err): // a connection may break at this moment, so a single failure means little
			st.fail(err)
		}
		lease.Sleep(st.ctx, pause)
	}
}

// fail notes why there is no session, and logs it if the reason is new.
func (st *Store) fail(err error) {
	if st.current.Set(nil, err) && st.ctx.Err() == nil {
		st.log.Warn("PostgreSQL cannot be used; requests are refused until it can", "namespace", st.namespace, "error", err)
	}
}

// begin requests a lease, and reports what is there.
func (st *Store) begin() (*session, error) {
	s := &session{
		store: st, version: -1, wake: make(chan struct{}, 1),
		tickets: make(map[uint64]*serializer.Ticket), leaving: make(map[uint64]bool),
	}
	s.ctx, s.end = context.WithCancelCause(st.ctx)
	sent, err := s.open()
	if code(err) == undefinedTable {
		if err = s.makeTables(); err == nil {
			sent, err = s.open()
		}
	}
	if err == nil {
		s.lease = lease.Begin(nil, sent, st.ttl, s.lose)
		if err = s.start(); err != nil {
			s.lease.End(err)
			go lease.Forget(st.ctx, st.ttl, s.revoke)
		}
	}
	if err != nil {
		s.end(err)
		discard(s.working)
		return nil, err
	}
	return s, nil
}

// start reports what is there, and makes this the session that tickets are taken in.
func (s *session) start() error {
	if err := s.round(); err != nil {
		return fmt.Errorf("reading the queues: %w", err)
	}
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.over {
		return context.Cause(s.ctx)
	}
	st.sessions[s.id], st.lostEpoch = s, -1
	st.current.Set(s, nil)
	st.running.Go(s.work)
	go st.log.Info("got a lease from PostgreSQL", "host", st.server.Host, "database", st.server.Database,
		"namespace", st.namespace, "session", s.id, "ttl", st.ttl, "listening", s.listening)
	return nil
}

// notOpenError is why no session begins yet: history was lost.
type notOpenError struct{ remaining time.Duration }

func (e *notOpenError) Error() string {
	return fmt.Sprintf("commits may be missing; waiting for another %s until all leases have ended", e.remaining)
}

// open inserts the session's row. If the server has another history than before, or an
// answer has shown that, it ends all others. It returns when that was requested.
func (s *session) open() (sent time.Duration, err error) {
	if err := s.connect(); err != nil {
		return 0, err
	}
	st, tx := s.store, new(pgx.Batch)
	st.mu.Lock()
	lost := st.lostEpoch
	st.mu.Unlock()
	tx.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	tx.Queue(statements["add namespace"], st.namespace)
	tx.Queue(statements["lock"], st.namespace, 1)
	tx.Queue(statements["begin epoch"], st.namespace, st.ttl.Microseconds(), lost, st.channel)
	tx.Queue(statements["end sessions"], st.namespace)
	tx.Queue(statements["end tickets"], st.namespace)
	tx.Queue(statements["begin session"], st.namespace, st.owner.Name, st.ttl.Microseconds()).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&s.id, &s.namespace, &s.epoch); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	tx.Queue("COMMIT")
	var closed int64 // microseconds
	tx.Queue(statements["opening"], st.namespace).QueryRow(func(row pgx.Row) error {
		return row.Scan(&closed, &s.timeline, &s.channel, &s.durable)
	})
	sent = lease.Uptime()
	if err = st.exchange(s.ctx, s.working, tx); err != nil {
		return 0, err
	}
	st.channel = s.channel
	if s.id == 0 {
		return 0, &notOpenError{max(time.Duration(closed)*time.Microsecond, lease.RetryPause)}
	}
	return sent, s.listen()
}

// renew renews the lease. A process whose rounds fail lets it expire: it could not take
// its tickets out, and all others would wait for them.
func (s *session) renew() error {
	return s.lease.Renew(func() (time.Duration, error) {
		st := s.store
		if trouble := s.trouble.Load(); trouble != nil && !isWaiting(*trouble) {
			return 0, *trouble
		}
		if s.renewing == nil || s.renewing.IsClosed() {
			var err error
			if s.renewing, err = pgx.ConnectConfig(s.ctx, st.server); err != nil {
				return 0, err
			}
		}
		request, renewed := new(pgx.Batch), int64(0)
		request.Queue(statements["renew"], s.id).Exec(func(tag pgconn.CommandTag) error {
			renewed = tag.RowsAffected()
			return nil
		})
		err := st.exchange(s.ctx, s.renewing, request)
		if err == nil && renewed == 0 {
			err = lease.ErrEnded
		}
		return st.ttl, err
	})
}

// lose ends the session when its lease can no longer be relied on.
func (s *session) lose(cause error) {
	st, err := s.store, fmt.Errorf("%w: session %d: %w", serializer.ErrLost, s.id, cause)
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.over {
		return // the store is closed
	}
	s.over = true
	s.end(err)
	if errors.Is(cause, errOtherHistory) {
		st.lostEpoch = max(st.lostEpoch, s.epoch)
	}
	if st.current.Get() == s {
		st.current.Set(nil, nil)
	}
	if s.reported {
		st.events.Lost(err)
		s.forgetIfLeftLocked()
	}
}

// forgetIfLeftLocked ends a lost session in the database once its last holder has left, so
// that others need not wait for the end of its lease.
func (s *session) forgetIfLeftLocked() {
	if s.local == 0 {
		delete(s.store.sessions, s.id)
		go lease.Forget(s.store.ctx, s.store.ttl, s.revoke)
	}
}

// revoke ends a session in the database, by a connection of its own.
func (s *session) revoke(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, s.store.server)
	if err != nil {
		return err
	}
	defer discard(conn)
	tx := new(pgx.Batch)
	tx.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	tx.Queue(statements["lock"], s.store.namespace, 1)
	tx.Queue(statements["end session"], s.id)
	tx.Queue(statements["end sessions"], s.store.namespace)
	tx.Queue(statements["end tickets"], s.store.namespace)
	tx.Queue("SELECT pg_notify($1, '')", s.channel)
	tx.Queue("COMMIT")
	return s.store.exchange(ctx, conn, tx)
}
