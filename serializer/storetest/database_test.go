package storetest_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Database stands for a database that processes share. README.md says what
// its methods are in SQL.
type Database struct {
	mu      sync.Mutex
	last    uint64                   // number of a ticket, and version of a change
	number  func(last uint64) uint64 // spoils the numbers of tickets; nil if they are right
	tickets map[uint64]*Row
	pauses  map[string]*Pause
	changed chan struct{} // closed by the next change
}

// Row is a row of the table of tickets.
type Row struct {
	Number  uint64
	Version uint64 // of the last change
	Queue   string
	Client  string
	Rule    serializer.Rule
	Arrived time.Time
	Owner   string
	State   uint64
	Evict   bool
	Gone    bool
}

// Pause is a row of the table of pauses.
type Pause struct {
	Name    string
	Version uint64
	Until   time.Time // zero if it is over
}

// Changes is what a transaction has read, in order of version.
type Changes struct {
	Version uint64 // of the last one
	Tickets []Row
	Pauses  []Pause
}

// NewDatabase makes empty tables.
func NewDatabase() *Database {
	return &Database{tickets: make(map[uint64]*Row), pauses: make(map[string]*Pause), changed: make(chan struct{})}
}

// Transaction marks tickets as gone, executes statements, and reads what has changed since a
// version.
func (db *Database) Transaction(ctx context.Context, gone []uint64, statements func(*Tx), since uint64) (c Changes, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if ctx.Err() != nil {
		return c, context.Cause(ctx)
	}
	before := db.last
	tx := &Tx{db}
	tx.markGone(gone)
	statements(tx)
	if db.last != before {
		close(db.changed)
		db.changed = make(chan struct{})
	}
	return db.sinceLocked(since), nil
}

func (db *Database) sinceLocked(version uint64) Changes {
	c := Changes{Version: db.last}
	for _, r := range db.tickets {
		if r.Version > version {
			c.Tickets = append(c.Tickets, *r)
		}
	}
	for _, p := range db.pauses {
		if p.Version > version {
			c.Pauses = append(c.Pauses, *p)
		}
	}
	slices.SortFunc(c.Tickets, func(a, b Row) int { return cmp.Compare(a.Version, b.Version) })
	return c
}

// Listen calls a function after each change. It returns when ctx is done.
func (db *Database) Listen(ctx context.Context, changed func()) {
	for ctx.Err() == nil {
		next := db.nextChange()
		changed()
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
}

func (db *Database) nextChange() <-chan struct{} {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.changed
}

// Tx is a transaction. Its methods are called while the database is locked.
type Tx struct{ db *Database }

func (tx *Tx) nextVersion() uint64 {
	tx.db.last++
	return tx.db.last
}

// NextNumber returns a number for a ticket, greater than all before.
func (tx *Tx) NextNumber() uint64 {
	n := tx.nextVersion()
	if tx.db.number != nil {
		return tx.db.number(n)
	}
	return n
}

// Insert adds a ticket.
func (tx *Tx) Insert(r Row) {
	r.Version = tx.nextVersion()
	tx.db.tickets[r.Number] = &r
}

func (tx *Tx) markGone(numbers []uint64) {
	for _, n := range numbers {
		tx.update(n, func(r *Row) { r.Gone = true })
	}
}

// SetState notes that a ticket is inside.
func (tx *Tx) SetState(number, state uint64) { tx.update(number, func(r *Row) { r.State = state }) }

// SetEvict asks the owner of a ticket to take it out. It reports whether it is there.
func (tx *Tx) SetEvict(number uint64) bool { return tx.update(number, func(r *Row) { r.Evict = true }) }

func (tx *Tx) update(number uint64, change func(*Row)) bool {
	r := tx.db.tickets[number]
	if r == nil || r.Gone {
		return false
	}
	change(r)
	r.Version = tx.nextVersion()
	return true
}

// SetPause sets the end of a pause. The zero time ends it at once.
func (tx *Tx) SetPause(name string, until time.Time) {
	tx.db.pauses[name] = &Pause{Name: name, Version: tx.nextVersion(), Until: until}
}
