package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// fake is the protocol of a session that begins when the test says so.
type fake struct {
	Protocol // without the requests about tickets
	*Session
	starts   <-chan error
	refusals *atomic.Int64 // of requests to end the lease, before one succeeds
}

func (f *fake) Start() error {
	select {
	case err := <-f.starts:
		if err == nil {
			f.Begin("fake", Uptime(), ttl)
		}
		return err
	case <-f.Ctx.Done():
		return context.Cause(f.Ctx)
	}
}

func (f *fake) Keep() { <-f.Ctx.Done() }

func (f *fake) Revoke(context.Context) error {
	if f.refusals.Add(-1) >= 0 {
		return errors.New("trouble")
	}
	return nil
}

// losses are the events of a store that has no tickets.
type losses struct {
	serializer.Events
	causes   chan error
	refusals atomic.Int64 // see fake
}

func (l *losses) Lost(cause error) { l.causes <- cause }

// follow makes a store whose sessions begin with what the test sends.
func follow() (st *Store, starts chan error, l *losses) {
	starts, l = make(chan error), &losses{causes: make(chan error, 8)}
	st = NewStore(Options{
		TTL: ttl, Log: slog.New(slog.DiscardHandler),
		New: func(s *Session) Protocol { return &fake{Session: s, starts: starts, refusals: &l.refusals} },
	})
	st.Follow(l)
	return st, starts, l
}

// current waits for the session of a store.
func current(ctx context.Context, st *Store) (s *Session, err error) {
	err = st.do(ctx, "", func(current *Session) error { s = current; return nil })
	return s, err
}

// beginSession has a session begin.
func beginSession(t *testing.T, st *Store, starts chan<- error) (s *Session) {
	t.Helper()
	starts <- nil
	wait.Eventually(t, "a session has begun", func() (err error) {
		s, err = current(t.Context(), st)
		return err
	})
	return s
}

// Those who wait get the session, or why there is none. After a loss, they wait for the next.
func TestSessions(t *testing.T) {
	st, starts, l := follow()
	defer st.Close()
	over, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("over"))
	defer cancel()
	if _, err := current(over, st); err == nil || err.Error() != "over" {
		t.Errorf("without a session: %v", err)
	}
	refused, answer := errors.New("refused"), make(chan error)
	go func() { _, err := current(t.Context(), st); answer <- err }()
	starts <- refused
	if err := <-answer; !errors.Is(err, refused) || !errors.Is(err, serializer.ErrStorage) {
		t.Errorf("got %v; expected %v", err, refused)
	}
	for range 2 {
		beginSession(t, st, starts).End(refused)
		if cause := <-l.causes; !errors.Is(cause, serializer.ErrLost) || !errors.Is(cause, refused) {
			t.Errorf("lost with %v", cause)
		}
	}
}

// Bug: a second engine took the reports of the first, whose callers waited for ever.
func TestSecondEngine(t *testing.T) {
	st, _, l := follow()
	defer st.Close()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	st.Follow(l)
}

// Bug: a session that ended while the store was closed was reported after Close.
func TestEndWhileClosing(t *testing.T) {
	st, starts, l := follow()
	s, ended := beginSession(t, st, starts), make(chan struct{})
	st.Mu.Lock()
	go func() { s.End(ErrDeadline); close(ended) }()
	wait.Until(t, "it has ended", func() bool { return !s.Stands() })
	time.AfterFunc(50*time.Millisecond, st.Mu.Unlock) // Close waits for that
	_ = st.Close()
	reported := len(l.causes)
	<-ended
	if len(l.causes) > reported {
		t.Error("a loss was reported after Close")
	}
}

// A lost lease that cannot be ended is ended later, but not for ever. That of a closed store is only
// tried a few times: the server may be gone. Bug: once, so a lock let others wait for the time to live.
func TestLeaseEndsLater(t *testing.T) {
	st, starts, l := follow()
	l.refusals.Store(5)
	s := beginSession(t, st, starts)
	s.End(ErrDeadline)
	wait.Until(t, "a lost lease is ended", func() bool { return l.refusals.Load() < 0 })
	beginSession(t, st, starts)
	l.refusals.Store(1000)
	err, tries := st.Close(), 1000-l.refusals.Load()
	if err == nil || tries < 2 || tries > 5 {
		t.Errorf("Close: %v after %d tries", err, tries)
	}
	st.TTL = time.Millisecond
	if s.revoke(t.Context(), 0) == nil {
		t.Error("a lease is ended after 1000 refusals")
	}
}

// Bug: the lease of a server that was silent for more than two ttl stayed there, and the process that
// had lost it waited for its end.
func TestLeaseEndsAfterSilence(t *testing.T) {
	st, starts, l := follow()
	st.TTL = time.Millisecond
	l.refusals.Store(1000)
	beginSession(t, st, starts).End(ErrDeadline)
	wait.Until(t, "the second try has come too late", func() bool { return l.refusals.Load() == 998 })
	l.refusals.Store(0)
	beginSession(t, st, starts)
	wait.Until(t, "the lost lease is ended", func() bool { return l.refusals.Load() < 0 })
}

// A record is documented for operators, and shared by processes of different versions.
func TestRecord(t *testing.T) {
	since := time.Date(2026, 11, 20, 8, 15, 30, 123456000, time.UTC)
	for _, c := range []struct {
		rule   serializer.Rule
		client string
		state  uint64
		want   string
	}{
		{serializer.Rule{Limit: 1}, "192.168.0.1:36794", 0,
			`{"queue":"a%2Fb","owner":"pid 1 on web1","client":"192.168.0.1:36794","since":"2026-11-20T08:15:30.123456Z","limit":1}`},
		{serializer.Rule{Shared: true, Limit: 3}, "", IsInside | IsAsked,
			`{"queue":"a%2Fb","owner":"pid 1 on web1","since":"2026-11-20T08:15:30.123456Z","shared":true,"limit":3,"inside":true,"evict":true}`},
	} {
		ticket := &serializer.Ticket{Queue: "a/b", Arrived: since, Owner: &serializer.Owner{Name: "pid 1 on web1"}}
		ticket.Rule = c.rule
		ticket.Client = c.client
		got := Record(ticket, c.state)
		if got != c.want {
			t.Errorf("got %s; expected %s", got, c.want)
		}
		read := RemoteTicket("key", 17, got)
		if Record(read, read.Ref) != got || read.Number != 17 || read.Key != "key" || !read.Owner.Alive {
			t.Errorf("%s is read as %+v", got, read)
		}
	}
}

// The record of a later version is read, and one that cannot be read is exclusive.
func TestOtherRecords(t *testing.T) {
	later := RemoteTicket("", 1, `{"owner":"pid 1 on web1","colour":{"red":1},"shared":true,"limit":3,"inside":true}`)
	if later.Owner.Name != "pid 1 on web1" || later.Rule != (serializer.Rule{Shared: true, Limit: 3}) || later.Ref != IsInside {
		t.Errorf("the record of a later version is read as %+v", later)
	}
	for _, text := range []string{"", "{", `{"shared":true,"limit":"x"}`} {
		if r := RemoteTicket("", 1, text); r.Owner.Name != "unknown" || r.Rule != (serializer.Rule{}) {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
}
