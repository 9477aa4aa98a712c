package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// session is the lifetime of one lease, and what the process knows in it.
type session struct {
	*lease.Session
	store     *Store
	id        uint64 // a number of its namespace, so no two sessions have the same
	namespace int64
	epoch     int64
	timeline  string                // of the server's history
	channel   string                // of notifications
	serial    int64                 // of the last ticket; Append alone uses it
	trouble   atomic.Pointer[error] // why the last round failed; nil if it did not
	renewing  *pgx.Conn             // used by renew alone; nil while there is none

	// round and its helpers alone use these.

	working   *pgx.Conn // nil while there is none
	listening bool
	version   int64     // everything up to this one was reported; -1 if all must be read
	position  int64     // of the server in its log
	trimmed   int64     // rows of tickets that were out by then are deleted
	counted   time.Time // when the tickets were last counted
	endsAt    time.Time // when a round has last read the ends of leases and pauses
	due       time.Time // when the next lease or pause ends
	changedAt time.Time // when something was last reported, or done

	changes []*change // to be carried out; Store.Mu guards them
}

func (st *Store) newSession(base *lease.Session) lease.Protocol {
	return &session{Session: base, store: st, version: -1}
}

// Start implements [lease.Protocol].
func (s *session) Start() error {
	if err := s.start(); err != nil {
		discard(s.working)
		return err
	}
	s.Go(s.work)
	return nil
}

// start requests a lease, and reports what is there. While commits may be missing, it waits.
func (s *session) start() error {
	var sent, closed time.Duration
	for ; s.id == 0; lease.Sleep(s.Ctx, closed) {
		var err error
		sent, closed, err = s.open()
		if code(err) == undefinedTable {
			err = s.makeTables()
		}
		if err != nil {
			return err
		}
	}
	s.Begin(fmt.Sprint(s.id), sent, s.store.TTL)
	if err := s.round(); err != nil {
		return fmt.Errorf("reading the queues: %w", err)
	}
	return nil
}

// Keep implements [lease.Protocol].
func (s *session) Keep() {
	s.Deadline.Keep(s.Ctx, s.store.TTL, s.renew)
	discard(s.renewing)
}

// open inserts the session's row. If the server has another history than before, or an
// answer has shown that, it ends all others. It returns when that was requested, and, if no
// session may begin yet, for how long.
func (s *session) open() (sent, closed time.Duration, err error) {
	if err := s.connect(); err != nil {
		return 0, 0, err
	}
	st, tx := s.store, new(pgx.Batch)
	beginDurable(tx)
	tx.Queue(statements["add namespace"], st.namespace)
	tx.Queue(statements["lock"], st.namespace, 1)
	tx.Queue(statements["begin epoch"], st.namespace, st.TTL.Microseconds(), st.lostBefore.Load(), st.channel)
	tx.Queue(statements["end sessions"], st.namespace)
	tx.Queue(statements["end tickets"], st.namespace)
	tx.Queue(statements["begin session"], st.namespace, st.Owner.Name, st.TTL.Microseconds())
	var micros int64
	tx.Queue(statements["opening"], st.namespace).QueryRow(func(row pgx.Row) error {
		return row.Scan(&micros, &s.timeline, &s.channel, &s.id, &s.namespace, &s.epoch)
	})
	tx.Queue("COMMIT")
	sent = lease.Uptime()
	if err = st.exchange(s.Ctx, s.working, tx); err != nil {
		return 0, 0, err
	}
	st.channel = s.channel
	if s.id == 0 {
		return 0, max(time.Duration(micros)*time.Microsecond, lease.RetryPause), nil
	}
	return sent, 0, s.listen()
}

// beginDurable begins a transaction that is on the server's disk once it is committed, even if
// the server's default is not to wait for that.
func beginDurable(tx *pgx.Batch) {
	tx.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	tx.Queue("SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'")
}

// renew renews the lease. A process whose rounds fail lets it expire: it could not take
// its tickets out, and all others would wait for them.
func (s *session) renew() error {
	return s.Renew(func() (time.Duration, error) {
		st := s.store
		if trouble := s.trouble.Load(); trouble != nil && !isWaiting(*trouble) {
			return 0, *trouble
		}
		if s.renewing == nil || s.renewing.IsClosed() {
			var err error
			if s.renewing, err = pgx.ConnectConfig(s.Ctx, st.server); err != nil {
				return 0, err
			}
		}
		request := new(pgx.Batch)
		beginDurable(request)
		request.Queue(statements["renew"], s.id).QueryRow(func(row pgx.Row) error { return row.Scan(new(uint64)) })
		request.Queue("COMMIT")
		err := st.exchange(s.Ctx, s.renewing, request)
		if errors.Is(err, pgx.ErrNoRows) {
			err = lease.ErrEnded
		}
		return st.TTL, err
	})
}

// Revoke implements [lease.Protocol]. It uses a connection of its own.
func (s *session) Revoke(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, s.store.server)
	if err != nil {
		return err
	}
	defer discard(conn)
	tx := new(pgx.Batch)
	beginDurable(tx)
	tx.Queue(statements["lock"], s.store.namespace, 1)
	tx.Queue(statements["end session"], s.id)
	tx.Queue(statements["end sessions"], s.store.namespace)
	tx.Queue(statements["end tickets"], s.store.namespace)
	tx.Queue("SELECT pg_notify($1, '')", s.channel)
	tx.Queue("COMMIT")
	return s.store.exchange(ctx, conn, tx)
}
