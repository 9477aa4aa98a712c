package postgres

import (
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// answer is what a round has read, all at one moment.
type answer struct {
	last, trimmed int64
	timeline      string
	position      int64
	stands        bool // the session
	orphans       bool // an operator has deleted the session of a ticket
	count         int  // of tickets
	others        []lease.Heartbeat
	tickets       []row
	pauses        []pause
}

// row is a row of the table of tickets.
type row struct {
	Number, Session uint64
	Serial          int64
	Record          string
	State           uint64 // for Session.StateLocked
	Gone            bool
}

func (r *row) key() string { return strconv.FormatUint(r.Number, 10) }

// pause is a row of the table of pauses.
type pause struct {
	Name  string // in hexadecimal
	Until int64  // microseconds since 1970
}

// round carries out what is pending in one transaction, reads what has changed since the
// last round, and reports it.
func (s *session) round() error {
	w, a := s.takeWork(), new(answer)
	err := s.connect()
	if err == nil {
		requests := new(pgx.Batch)
		s.write(requests, w)
		if w.reads {
			s.read(requests, w, a)
		}
		err = s.store.exchange(s.Ctx, s.working, requests)
	}
	switch {
	case err == nil && w.reads:
		err = s.checkHistory(a)
	case errors.Is(err, pgx.ErrNoRows): // the namespace was deleted
		s.End(lease.ErrEnded)
	}
	if err != nil {
		s.putBack(w, err)
		return err
	}
	return s.report(w, a)
}

// write adds the transaction that carries out work.
func (s *session) write(tx *pgx.Batch, w *work) {
	if !w.writes() {
		return
	}
	message, notifies := w.message()
	s.store.begin(tx, "begin")
	tx.Queue(s.statements["lock"], s.store.namespace)
	if w.due {
		ids, renewals := s.store.others.Stale()
		tx.Queue(s.statements["end sessions"], ids, renewals)
		tx.Queue(s.statements["end tickets"], s.store.namespace)
	}
	if w.trim > 0 {
		tx.Queue(s.statements["trim"], s.namespace, w.trim)
	}
	if len(w.Leaving) > 0 {
		tx.Queue(s.statements["take out"], s.namespace, w.Leaving)
	}
	if len(w.Inside) > 0 {
		var numbers []uint64
		for _, t := range w.Inside {
			numbers = append(numbers, t.Number)
		}
		tx.Queue(s.statements["mark inside"], s.namespace, numbers)
	}
	for _, c := range w.changes {
		if c.statement != "" {
			tx.Queue(s.statements[c.statement], append([]any{s.namespace}, c.args...)...)
		}
	}
	if notifies {
		tx.Queue("NOTIFY " + s.channel + ", '" + message + "'") // of numbers
	}
	tx.Queue("COMMIT")
}

// read adds the requests that read what has changed.
func (s *session) read(tx *pgx.Batch, w *work, a *answer) {
	s.store.begin(tx, "begin reading")
	tx.Queue(s.statements["read state"], s.namespace, s.id).QueryRow(func(row pgx.Row) error {
		return row.Scan(&a.last, &a.trimmed, &a.timeline, &a.position, &a.stands)
	})
	if w.ends {
		collect(tx.Queue(s.statements["read leases"], s.store.namespace, s.id), &a.others)
		tx.Queue(s.statements["read counts"], s.namespace).QueryRow(func(row pgx.Row) error { return row.Scan(&a.orphans, &a.count) })
	}
	collect(tx.Queue(s.statements["read tickets"], s.namespace, s.version), &a.tickets)
	collect(tx.Queue(s.statements["read pauses"], s.namespace, s.version), &a.pauses)
	tx.Queue("COMMIT")
}

// collect has the rows of an answer appear in a slice of structs.
func collect[T any](request *pgx.QueuedQuery, into *[]T) {
	request.Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
		return err
	})
}
