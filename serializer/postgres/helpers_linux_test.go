package postgres

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testrelay"
)

const shortTTL = 3 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// engine is what a process has: an engine on its own store.
type engine struct {
	*serializer.Engine
	lost atomic.Int64 // leases
}

// Write reads the engine's log.
func (e *engine) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("the claim on the queues was lost")) {
		e.lost.Add(1)
	}
	return len(line), nil
}

// open makes an engine, as a process does, and does not wait for the server.
func open(t testing.TB, o Options, log ...io.Writer) *engine {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = shortTTL
	}
	o.Log = slog.New(slog.NewTextHandler(io.MultiWriter(append(log, logOf(t))...), nil))
	store, err := Open(o)
	must(t, err)
	e := new(engine)
	e.Engine = serializer.New(store, serializer.Options{Log: slog.New(slog.NewTextHandler(e, nil))})
	t.Cleanup(func() { e.Close() })
	return e
}

// testLog writes to the log of a test until it ends. A store may still write an entry later,
// which it has held back because there were many.
type testLog struct {
	mu sync.Mutex
	to io.Writer
}

func logOf(t testing.TB) io.Writer {
	l := &testLog{to: t.Output()}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.to = io.Discard
	})
	return l
}

func (l *testLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(text)
}

// ready makes an engine, and waits until it has a lease.
func ready(t testing.TB, url string) *engine {
	t.Helper()
	e := open(t, Options{URL: url})
	wait.Eventually(t, "the engine has a lease", func() error {
		_, err := e.Queues(t.Context())
		return err
	})
	return e
}

func arrivalFor(timeout time.Duration) serializer.Arrival {
	return serializer.Arrival{Queue: "a_", Client: "192.0.2.1:36794", Timeout: timeout}
}

// held enters, and returns the turn with the causes of its revocation.
func held(t testing.TB, e *engine) (serializer.Turn, chan error) {
	t.Helper()
	a, revoked := arrivalFor(wait.Patience), make(chan error, 1)
	a.Revoke = func(cause error) { revoked <- cause }
	turn, err := e.Enter(t.Context(), a)
	must(t, err)
	return turn, revoked
}

func wantRevoked(t testing.TB, revoked <-chan error, cause error) {
	t.Helper()
	select {
	case err := <-revoked:
		if !errors.Is(err, cause) {
			t.Errorf("revoked with %v; expected %v", err, cause)
		}
	case <-time.After(wait.Patience):
		t.Error("the holder's turn is not revoked")
	}
}

// join starts an arrival, and returns once it has a ticket. Its turn, or nil, is sent.
func join(t testing.TB, e *engine) <-chan serializer.Turn {
	t.Helper()
	count := func() int { inside, waiting := e.Count("a_"); return inside + waiting }
	before, done := count(), make(chan serializer.Turn, 1)
	go func() {
		turn, err := e.Enter(t.Context(), arrivalFor(wait.Patience))
		if err != nil {
			t.Log("refused: ", err)
		}
		done <- turn
	}()
	wait.Until(t, "the arrival has a ticket", func() bool { return count() > before || len(done) > 0 })
	return done
}

// enterSoon enters as soon as that is possible, leaves, and returns the token.
func enterSoon(t testing.TB, e *engine) (token uint64) {
	t.Helper()
	wait.Eventually(t, "arrivals enter", func() error {
		turn, err := e.Enter(t.Context(), arrivalFor(5*time.Second))
		if err == nil {
			token = turn.Token()
			turn.Leave()
		}
		return err
	})
	return token
}

// nextIn waits for an arrival's turn, leaves, and checks how long it took since a moment.
func nextIn(t testing.TB, next <-chan serializer.Turn, since time.Time, most time.Duration) {
	t.Helper()
	select {
	case turn := <-next:
		if turn == nil {
			t.Error("the next one is refused")
			return
		}
		turn.Leave()
		t.Logf("the next one entered after %s", time.Since(since).Round(100*time.Millisecond))
		if took := time.Since(since); took > most {
			t.Errorf("the next one entered after %s; expected at most %s", took, most)
		}
	case <-time.After(wait.Patience):
		t.Error("the next one does not enter")
	}
}

// wantRefused makes sure that arrivals are refused because of storage, with a text.
func wantRefused(t testing.TB, e *engine, text string) {
	t.Helper()
	wait.Until(t, "arrivals are refused with "+text, func() bool {
		turn, err := e.Enter(t.Context(), arrivalFor(5*time.Second))
		if err == nil {
			turn.Leave()
			return false
		}
		t.Log(err)
		return serializer.ReasonOf(err) == serializer.ReasonStorage && strings.Contains(err.Error(), text)
	})
}

// relay is a link to a server that can be parted and cut.
type relay struct{ *testrelay.Relay }

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	return &relay{testrelay.Start(t, to)}
}

func (r *relay) url() string { return "postgres://orderly@" + r.Addr + "/orderly?sslmode=disable" }

// second drops an answer of which only the error is of interest.
func second[T any](_ T, err error) error { return err }
