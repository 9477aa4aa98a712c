package postgres

import (
	"cmp"
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
	trouble   atomic.Pointer[error] // why the last round has failed, if it has
	renewing  *pgx.Conn             // used by open and renew alone; nil while there is none

	// round and its helpers alone use these.

	working    *pgx.Conn         // nil while there is none
	listening  bool              // to notifications
	statements map[string]string // those that the connection can carry out
	version    int64             // everything up to this one was reported; -1 if all must be read
	position   int64             // of the server in its log
	old        int64             // a version that was known at trimmedAt
	trimmedAt  time.Time         // when the process has last deleted rows
	endsAt     time.Time         // when a round has last read when leases end
	due        time.Time         // when the next lease may have ended
	changedAt  time.Time         // when something was last reported, or done

	changes []*change // to be carried out; Store.Mu guards them
}

// Start implements [lease.Protocol]. While commits may be missing, it waits.
func (s *session) Start() (err error) {
	for s.id == 0 && err == nil {
		discard(s.working, s.renewing) // the server may have ended them while the session waited
		if err = s.open(); code(err) == undefinedTable && s.store.identity == "" {
			err = s.makeTables()
		}
	}
	if err == nil {
		if err = s.round(); err == nil {
			s.Go(s.work)
			return nil
		}
		err = fmt.Errorf("reading the queues: %w", err)
	}
	discard(s.working, s.renewing)
	return err
}

// Keep implements [lease.Protocol].
func (s *session) Keep() {
	s.Deadline.Keep(s.Ctx, s.store.TTL, func() error { return s.Renew(s.renew) })
	discard(s.renewing)
}

// open inserts the session's row. If the server has another history than before, or an
// answer has shown that, it ends all others. If no session may begin yet, it waits for a while.
func (s *session) open() (err error) {
	st, tx, others, identity, place := s.store, new(pgx.Batch), []lease.Heartbeat(nil), "", ""
	ids, renewals := st.others.Stale()
	st.begin(tx, "begin")
	tx.Queue(statements["add namespace"], st.namespace, st.TTL.Microseconds(), st.identity)
	tx.Queue(statements["lock"], st.namespace)
	tx.Queue(statements["begin epoch"], st.namespace, st.lostBefore.Load(), st.identity, st.known.Load())
	tx.Queue(statements["end sessions"], ids, renewals)
	tx.Queue(statements["end tickets"], st.namespace)
	tx.Queue(statements["begin session"], st.namespace, st.Owner.Name, st.TTL.Microseconds(), st.identity)
	tx.Queue(statements["opening"], st.namespace).QueryRow(func(row pgx.Row) error {
		return row.Scan(&s.timeline, &s.channel, &s.id, &s.namespace, &s.epoch, &identity, &place)
	})
	collect(tx.Queue(statements["read leases"], st.namespace, 0), &others)
	tx.Queue("COMMIT")
	if err = s.connectBoth(); err != nil { // before the lease runs: hosts may be silent
		return err
	}
	sent := lease.Uptime()
	err = st.exchange(s.Ctx, s.working, tx)
	missing := errors.Is(err, pgx.ErrNoRows) || code(err) == undefinedTable
	if st.identity != "" && (missing || err == nil && identity != st.identity) {
		return st.elsewhere(s.Ctx)
	}
	if err != nil {
		return err
	}
	if next := st.others.See(others); s.id == 0 {
		lease.Sleep(s.Ctx, min(max(next, lease.RetryPause), time.Second))
		return context.Cause(s.Ctx)
	}
	st.identity, st.place = identity, place
	s.Begin(fmt.Sprint(s.id), sent, st.TTL)
	return nil
}

// connectBoth makes both connections at once: the server may end one that is idle.
func (s *session) connectBoth() (err error) {
	st, connected := s.store, make(chan error, 1)
	go func() {
		conn, _, err := st.connect(s.Ctx, st.TTL)
		s.renewing = conn
		connected <- err
	}()
	return cmp.Or(s.connect(), <-connected)
}

// elsewhere says which history the connection leads to, and what to do.
func (st *Store) elsewhere(ctx context.Context) error {
	here, tables := "", false
	where := new(pgx.Batch)
	where.Queue(statements["where"]).QueryRow(func(row pgx.Row) error { return row.Scan(&here, &tables) })
	if err := st.once(ctx, where); err != nil {
		return fmt.Errorf("looking where the tables are: %w", err)
	}
	found := "no tables of Orderly"
	if tables {
		found = "other tables of Orderly, or others' rows"
	}
	return fmt.Errorf("%w: found %s in %s; this process has used those in %s, where others may be inside; "+
		"put the address, the user's search_path or the tables right, or, if nobody uses the old ones, restart all Caddys", lease.ErrElsewhere, found, here, st.place)
}

// renew renews the lease. A process whose rounds fail lets it expire: it could not take
// its tickets out, and all other processes would wait for them. One that only waits for a lock does not.
func (s *session) renew() (ttl time.Duration, err error) {
	if trouble := s.trouble.Load(); trouble != nil && *trouble != nil && code(*trouble) != lockNotAvailable {
		return 0, *trouble
	}
	if s.renewing == nil || s.renewing.IsClosed() {
		if s.renewing, _, err = s.store.connect(s.Ctx, s.store.TTL); err != nil {
			return 0, err
		}
	}
	request := new(pgx.Batch)
	s.store.begin(request, "begin")
	request.Queue(statements["renew"], s.id).QueryRow(func(row pgx.Row) error { return row.Scan(new(uint64)) })
	request.Queue("COMMIT")
	if err = s.store.exchange(s.Ctx, s.renewing, request); errors.Is(err, pgx.ErrNoRows) {
		err = lease.ErrEnded
	}
	return s.store.TTL, err
}

// Revoke implements [lease.Protocol].
func (s *session) Revoke(ctx context.Context) error {
	tx := new(pgx.Batch)
	s.store.begin(tx, "begin")
	tx.Queue(statements["lock"], s.store.namespace)
	tx.Queue(statements["end session"], s.id)
	tx.Queue(statements["end tickets"], s.store.namespace)
	tx.Queue("NOTIFY " + s.channel)
	tx.Queue("COMMIT")
	return s.store.once(ctx, tx)
}
