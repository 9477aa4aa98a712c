package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// exchange sends requests as one message, and reads all answers. If it fails, the
// connection is closed, because it may be in the middle of anything.
//
// One message of PostgreSQL's simple protocol is carried out as a whole as soon as it has
// arrived, up to its COMMIT. With any other way, a process that stops or is cut off
// between two messages would hold its row locks for hours.
func (st *Store) exchange(ctx context.Context, conn *pgx.Conn, requests *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, st.patience)
	defer cancel()
	err := conn.SendBatch(ctx, requests).Close()
	if err != nil {
		discard(conn)
	}
	return err
}

// discard closes a connection without waiting for its server.
func discard(conn *pgx.Conn) {
	if conn != nil {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = conn.Close(over) // it is not used any more
	}
}

// connect makes the connection of rounds, if there is none.
func (s *session) connect() (err error) {
	if s.working != nil && !s.working.IsClosed() {
		return nil
	}
	if s.working, err = pgx.ConnectConfig(s.Ctx, s.store.server); err != nil || s.channel == "" {
		return err
	}
	return s.listen()
}

// listen has the connection receive notifications, and prepares statements. It does not for
// one through a pooler: there, both would stay with a connection that belongs to somebody
// else next. A pooler shows by the identity of the server's process.
func (s *session) listen() error {
	ctx, cancel := context.WithTimeout(s.Ctx, s.store.patience)
	defer cancel()
	var pid uint32
	err := s.working.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	s.listening, s.statements = err == nil && pid == s.working.PgConn().PID(), statements
	if s.listening {
		s.statements = prepared
		_, err = s.working.Exec(ctx, prepare+"LISTEN "+s.channel)
	}
	if err != nil {
		discard(s.working)
	}
	return err
}

// makeTables makes missing tables.
func (s *session) makeTables() error {
	if err := s.connect(); err != nil {
		return err
	}
	making := new(pgx.Batch)
	making.Queue("SELECT pg_advisory_xact_lock(hashtext('orderly'))") // others may be doing this
	making.Queue(schema)
	err := s.store.exchange(s.Ctx, s.working, making)
	if code(err) == insufficientPrivilege {
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
	queryCanceled         = "57014"
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

// isWaiting reports whether a request may have failed because somebody locks a table.
func isWaiting(err error) bool {
	return code(err) == lockNotAvailable || code(err) == queryCanceled || errors.Is(err, context.DeadlineExceeded)
}
