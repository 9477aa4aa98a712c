package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// exchange sends requests as one message, and reads all answers; see [Store] for why. If it
// fails, the connection is closed, because it may be in the middle of anything. The end of a
// session does not interrupt it: pgx would send a cancel request, by which PgBouncer 1.18 can
// crash.
func (st *Store) exchange(ctx context.Context, conn *pgx.Conn, requests *pgx.Batch) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), st.patience)
	defer cancel()
	if err = conn.SendBatch(ctx, requests).Close(); err != nil {
		discard(conn)
	}
	return err
}

// discard closes connections without waiting for their server.
func discard(conns ...*pgx.Conn) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close(over) // it is not used any more
		}
	}
}

// connect makes a connection, and reports whether it is without a pooler. The server ends it
// when it has been idle for a while, because a process that is cut off cannot.
func (st *Store) connect(ctx context.Context, idle time.Duration) (conn *pgx.Conn, direct bool, err error) {
	if conn, err = pgx.ConnectConfig(ctx, st.server); err != nil {
		return nil, false, refusal{err}
	}
	requests := new(pgx.Batch)
	requests.Queue(statements["settle"], int64(conn.PgConn().PID()), idle.Milliseconds(), st.patience.Milliseconds()/3).QueryRow(
		func(row pgx.Row) error { return row.Scan(&direct) })
	return conn, direct, st.exchange(ctx, conn, requests)
}

// refusal is why no host could be connected to. The library gives each host, and each attempt with and
// without TLS, a line of its own, which would break a log.
type refusal struct{ error }

func (r refusal) Error() string {
	return strings.NewReplacer(":\n\t", ": ", "\n\t", "; ").Replace(r.error.Error())
}

func (r refusal) Unwrap() error { return r.error }

// once sends requests on a connection of their own.
func (st *Store) once(ctx context.Context, requests *pgx.Batch) error {
	conn, _, err := st.connect(ctx, 5*st.patience)
	if err == nil {
		err = st.exchange(ctx, conn, requests)
	}
	discard(conn)
	return err
}

// connect makes the connection of rounds, if there is none. Once the session has begun, it
// receives notifications, and prepares statements. Through a pooler, it does not: there, both
// would stay with a connection that belongs to somebody else next.
func (s *session) connect() (err error) {
	if s.working == nil || s.working.IsClosed() {
		s.working, s.listening, err = s.store.connect(s.Ctx, 5*s.store.patience)
		s.statements = nil
	}
	if err != nil || s.statements != nil || s.id == 0 {
		return err
	}
	if s.statements = statements; !s.listening {
		return nil
	}
	s.statements = prepared
	ctx, cancel := context.WithTimeout(s.Ctx, s.store.patience)
	defer cancel()
	if _, err = s.working.Exec(ctx, prepare+"LISTEN "+s.channel); err != nil {
		discard(s.working)
	}
	return err
}

// begin adds the begin of a transaction. If somebody locks what it needs, the server says so
// while the process still waits, even if another one, which waits too, was in the way before.
func (st *Store) begin(tx *pgx.Batch, statement string) {
	tx.Queue(statements[statement])
	tx.Queue("SET LOCAL lock_timeout = $1", (st.patience / 3).String())
}

// makeTables makes missing tables.
func (s *session) makeTables() (err error) {
	making := new(pgx.Batch)
	making.Queue("SELECT pg_advisory_xact_lock(hashtext('orderly'))") // others may be doing this
	making.Queue(schema)
	if err = s.store.once(s.Ctx, making); code(err) == insufficientPrivilege {
		return fmt.Errorf("the tables are missing, and the user may not make them (%s); an administrator can, and then "+
			"GRANT SELECT, INSERT, UPDATE, DELETE on each to the user: %s", err.Error(), onOneLine(schema))
	}
	return err
}

// Codes of errors; see "PostgreSQL Error Codes" in its manual.
const (
	undefinedTable        = "42P01"
	insufficientPrivilege = "42501"
	lockNotAvailable      = "55P03"
)

// code is the code of a server's error; empty if it is none.
func code(err error) string {
	if known, ok := errors.AsType[*pgconn.PgError](err); ok {
		return known.Code
	}
	return ""
}

// transient reports whether a request may succeed when it is repeated soon. Except for a
// conflict with another transaction, it may also have been carried out: the server can end
// a connection after the commit, too.
func transient(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	text := code(err)
	// Connection, constraint, conflict, state of an object, operator, system.
	return connecting || text == "" || slices.Contains([]string{"08", "23", "40", "55", "57", "58"}, text[:2])
}
