package serializer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// If the holder's process is killed, the next one enters at once, because the kernel
// releases the lock.
func TestRecoveryAfterKill(t *testing.T) {
	const typical, worst = 50 * time.Millisecond, 250 * time.Millisecond
	var took []time.Duration
	for attempt := range 3 { // on a busy machine, a killed process may take time to end
		took = recoveries(t, 9)
		t.Logf("median %v, worst %v", took[len(took)/2], took[len(took)-1])
		if took[len(took)/2] <= typical && took[len(took)-1] <= worst {
			return
		}
		t.Logf("attempt %d was too slow", attempt+1)
	}
	t.Errorf("want a median of at most %v and a worst of at most %v", typical, worst)
}

func recoveries(t *testing.T, times int) (took []time.Duration) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	for range times {
		holder := helper{Dir: dir, Queue: "a_"}.start(t)
		holder.says(t, "open")
		holder.says(t, "inside")
		next := started(e, arrival("a_"))
		wait.Until(t, "the next one waits", func() bool { return length(t, e, "a_") == 2 })
		killed := time.Now()
		holder.signal(t, syscall.SIGKILL)
		turn := get(t, next)
		took = append(took, time.Since(killed))
		turn.Leave()
	}
	if n := len(filesOf(t, dir)); n > 2 {
		t.Errorf("%d files are left, want the guard and our owner file", n)
	}
	slices.Sort(took)
	return took
}

// A process that is stopped while it issues tickets keeps the guard. The others' requests
// end by their own timeouts, and continue when it does.
func TestStoppedInGuard(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	enter(t, e, arrival("b_")).Leave()
	p := helper{Dir: dir, Queue: "a_", StopInGuard: true}.start(t)
	p.says(t, "open")
	p.stopped(t)

	a := arrival("b_")
	a.Timeout = 50 * time.Millisecond
	start := time.Now()
	_, err := e.Enter(context.Background(), a)
	wantRefusal(t, err, ReasonTimeout, ErrTimeout)
	if took := time.Since(start); took > patience/2 {
		t.Errorf("took %v", took)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = e.Enter(ctx, arrival("b_"))
	wantRefusal(t, err, ReasonGone, context.DeadlineExceeded)

	waiting := started(e, arrival("a_"))
	p.signal(t, syscall.SIGCONT)
	p.says(t, "inside")
	p.leave(t)
	get(t, waiting).Leave()
}

// A process that is stopped inside keeps its turn, and gives it up if it is killed.
func TestStoppedInside(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	p := helper{Dir: dir, Queue: "a_"}.start(t)
	p.says(t, "open")
	p.says(t, "inside")
	p.signal(t, syscall.SIGSTOP)
	p.stopped(t)
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the holder is stopped, not dead")
	p.signal(t, syscall.SIGKILL)
	get(t, next).Leave()
}

// makeUnowned makes a lock file as mod_serializer does.
func makeUnowned(t testing.TB, dir, queue string) (path string) {
	t.Helper()
	path = filepath.Join(dir, Ticket{Prefix: queue, Stamp: uint64(time.Now().UnixMicro()), Client: arrival("").Client}.Name())
	touch(t, path)
	return path
}

// Arrivals wait for an unowned file; once it is gone, the next one enters at once.
func TestUnownedFileIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	path := makeUnowned(t, dir, "a_")
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the unowned file is first")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	get(t, next).Leave()
}

// An unowned file that stays for too long counts as abandoned, and the log
// says so.
func TestUnownedFileIsAbandoned(t *testing.T) {
	dir := t.TempDir()
	e, log := openLogged(t, dir)
	e.unownedTime = 5 * tickInterval
	path := makeUnowned(t, dir, "a_")
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the unowned file is young")
	get(t, next).Leave()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
	wait.Until(t, "it is logged", func() bool {
		return strings.Contains(log.String(), "abandoned") && strings.Contains(log.String(), filepath.Base(path))
	})
}

// Bug: the five minutes began anew with each process, although the file was an hour old.
// Now the file's age counts, and the log says what arrivals wait for.
func TestUnownedFileIsAsOldAsItIs(t *testing.T) {
	dir := t.TempDir()
	path := makeUnowned(t, dir, "a_")
	made := time.Now()
	wait.Until(t, "the file has some age", func() bool { return time.Since(made) > time.Second })
	opened := time.Now()
	e, log := openLogged(t, dir)
	next := started(e, arrival("a_"))
	wait.Until(t, "an arrival waits for it", func() bool {
		return strings.Contains(log.String(), "waiting for") && strings.Contains(log.String(), filepath.Base(path))
	})
	age, open := e.unowned.age(filepath.Base(path)), time.Since(opened)
	if age-open < 900*time.Millisecond {
		t.Errorf("its age is %v, %v after the engine was opened", age, open)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	get(t, next).Leave()
}

// A file that is old enough is abandoned at once.
func TestOldUnownedFileIsAbandonedAtOnce(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	e.open = func(path string, clock func() time.Time) (lockDir, error) {
		d, err := openLockDir(path, clock)
		return &aged{d}, err
	}
	path := makeUnowned(t, dir, "a_")
	get(t, started(e, arrival("a_"))).Leave()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

// aged is a directory whose files are old.
type aged struct{ lockDir }

func (*aged) age(string) time.Duration { return time.Hour }

// openLogged opens an engine with a log.
func openLogged(t *testing.T, dir string) (*File, *logBuffer) {
	t.Helper()
	log := new(logBuffer)
	e, err := OpenFile(dir, FileOptions{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, log
}

type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// Files whose names only begin like the queue's do not belong to it, however old they
// are.
func TestLookAlikesAreIgnored(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"a_", "a_b_0000100000000000000000200000001192.168.0.1", "a_0000100000000000000000200000001",
		"a_0000100000000000000000300000001192.168.0.1", "a_0000100000000000000000200000001192.168.0.1.txt",
		"a_00010000000000000000200000001192.168.0.1", "a_10000100000000000000000200000001192.168.0.1",
		"a0000100000000000000000200000001192.168.0.1", "0000100000000000000000200000001192.168.0.1",
	} {
		touch(t, dir, name)
	}
	before := filesOf(t, dir)
	e := openAt(t, dir, 0)
	enter(t, e, arrival("a_")).Leave()
	e.Close()
	for _, name := range before {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Clocks that are far back and far ahead do not change the order.
func TestClocksApart(t *testing.T) {
	dir := t.TempDir()
	engines := []*File{openAt(t, dir, 0), openAt(t, dir, -time.Hour), openAt(t, dir, 24*time.Hour), openAt(t, dir, -30*365*24*time.Hour)}
	var last uint64
	var waiting []<-chan result
	for i := range 12 {
		waiting = append(waiting, started(engines[i%len(engines)], arrival("a_")))
		wait.Until(t, "the ticket is there", func() bool {
			names := slices.DeleteFunc(filesOf(t, dir), func(name string) bool { return !strings.HasPrefix(name, "a_") })
			return len(names) == i+1
		})
	}
	for i, w := range waiting {
		turn := get(t, w)
		if turn.Token() <= last {
			t.Errorf("arrival %d has token %d after %d", i, turn.Token(), last)
		}
		last = turn.Token()
		turn.Leave()
	}
}

// A remote ticket is evicted by a marker that its process sees: a waiter is refused, and
// a holder is notified.
func TestEvictOtherProcess(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	holder := helper{Dir: dir, Queue: "a_"}.start(t)
	holder.says(t, "open")
	holder.says(t, "inside")
	waiter := helper{Dir: dir, Queue: "a_"}.start(t)
	waiter.says(t, "open")
	enter(t, e, arrival("b_")).Leave()
	wait.Until(t, "both are in the queue", func() bool { return length(t, e, "a_") == 2 })
	tickets := queueOf(t, e, "a_").Tickets

	for _, step := range []struct {
		p    *process
		says string
	}{{holder, "told: evicted"}, {waiter, "error: "}} {
		token := tickets[0].Token
		tickets = tickets[1:]
		if err := e.Evict(context.Background(), "a_", parseToken(t, token)); err != nil {
			t.Fatal(err)
		}
		if line := step.p.says(t, step.says); !strings.Contains(line, "evicted") {
			t.Errorf("the process says %q", line)
		}
	}
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the evicted holder is still inside")
	holder.leave(t)
	get(t, next).Leave()
	for _, name := range filesOf(t, dir) {
		if strings.HasPrefix(name, evictMarker) {
			t.Errorf("left behind: %s", name)
		}
	}
}

func parseToken(t testing.TB, text string) uint64 {
	t.Helper()
	n, ok := parseDigits(text)
	if !ok {
		t.Fatalf("token %q", text)
	}
	return n
}
