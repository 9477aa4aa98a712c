package serializer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// engines runs a test on each engine of this package.
func engines(t *testing.T, test func(t *testing.T, e Engine)) {
	t.Run("memory", func(t *testing.T) { test(t, NewMemory(MemoryOptions{})) })
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		e := openFile(t, dir)
		test(t, e)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the directory is left empty but for the guard", func() bool {
			return len(filesOf(t, dir)) == 1
		})
	})
	t.Run("file without notification", func(t *testing.T) {
		dir := t.TempDir()
		e := openFile(t, dir)
		e.open = openDeaf
		test(t, e)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func openFile(t testing.TB, dir string) *File {
	t.Helper()
	e, err := OpenFile(dir, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func filesOf(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// waitUntil waits for a condition, for at most ten seconds.
func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting until %s", what)
		}
	}
}

func arrival(queue string) Arrival {
	return Arrival{Queue: queue, Client: netip.MustParseAddrPort("192.168.0.1:36794"), Timeout: 10 * time.Second}
}

func enter(t testing.TB, e Engine, a Arrival) Turn {
	t.Helper()
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// join starts an arrival and returns once it stands in line.
func join(t testing.TB, e Engine, a Arrival) <-chan result {
	t.Helper()
	before := length(t, e, a.Queue)
	done := make(chan result, 1)
	go func() {
		turn, err := e.Enter(context.Background(), a)
		done <- result{turn, err}
	}()
	waitUntil(t, "the arrival has its ticket", func() bool { return length(t, e, a.Queue) > before || len(done) > 0 })
	return done
}

type result struct {
	turn Turn
	err  error
}

func length(t testing.TB, e Engine, queue string) int {
	t.Helper()
	q := queueOf(t, e, queue)
	return q.Inside + q.Waiting
}

func queueOf(t testing.TB, e Engine, queue string) QueueState {
	t.Helper()
	queues, err := e.Queues(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if q.Prefix == queue {
			return q
		}
	}
	return QueueState{}
}

func TestOneAtATimeInOrder(t *testing.T) {
	engines(t, func(t *testing.T, e Engine) {
		var inside, overlaps, inversions atomic.Int64
		var last atomic.Uint64
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				for range 20 {
					turn, err := e.Enter(context.Background(), arrival("a_"))
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) > 1 {
						overlaps.Add(1)
					}
					if last.Swap(turn.Token()) >= turn.Token() {
						inversions.Add(1)
					}
					inside.Add(-1)
					turn.Leave()
				}
			})
		}
		group.Wait()
		if overlaps.Load() != 0 || inversions.Load() != 0 {
			t.Errorf("%d overlaps, %d inversions", overlaps.Load(), inversions.Load())
		}
	})
}

func TestRefusals(t *testing.T) {
	engines(t, func(t *testing.T, e Engine) {
		holder := enter(t, e, arrival("a_"))
		first := join(t, e, arrival("a_"))

		full := arrival("a_")
		full.MaxWaiting = 1
		_, err := e.Enter(context.Background(), full)
		wantRefusal(t, err, ReasonFull, ErrFull)

		late := arrival("a_")
		late.Timeout = 20 * time.Millisecond
		position := refusedLate(t, e, late)
		for position == 0 && late.Timeout < 10*time.Second { // no ticket in that time: the machine is busy
			late.Timeout *= 2
			position = refusedLate(t, e, late)
		}
		if position != 2 {
			t.Errorf("position %d, want 2", position)
		}

		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = e.Enter(ctx, arrival("a_"))
		wantRefusal(t, err, ReasonGone, context.Canceled)

		// A ticket that was being made for one who had gone is taken back after that.
		waitUntil(t, "2 tickets are left", func() bool { return length(t, e, "a_") == 2 })
		holder.Leave()
		r := <-first
		if r.err != nil {
			t.Fatal(r.err)
		}
		r.turn.Leave()
	})
}

// refusedLate is the position that an arrival had when it was refused for the time.
func refusedLate(t *testing.T, e Engine, a Arrival) (position int) {
	t.Helper()
	_, err := e.Enter(context.Background(), a)
	wantRefusal(t, err, ReasonTimeout, ErrTimeout)
	if refused, ok := errors.AsType[*Refused](err); ok {
		position = refused.Position
	}
	return position
}

func wantRefusal(t *testing.T, err error, reason Reason, cause error) {
	t.Helper()
	var refused *Refused
	if !errors.As(err, &refused) || refused.Reason != reason || !errors.Is(err, cause) {
		t.Errorf("got %v, want a refusal for %s", err, reason)
	}
}

func TestEvict(t *testing.T) {
	engines(t, func(t *testing.T, e Engine) {
		revoked := make(chan error, 1)
		a := arrival("a_")
		a.Revoke = func(err error) { revoked <- err }
		holder := enter(t, e, a)
		waiting := join(t, e, arrival("a_"))
		next := join(t, e, arrival("a_"))

		q := queueOf(t, e, "a_")
		var token uint64
		fmt.Sscan(q.Tickets[1].Token, &token)
		if err := e.Evict(context.Background(), "a_", token); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, (<-waiting).err, ReasonEvicted, ErrEvicted)

		if err := e.Evict(context.Background(), "a_", holder.Token()); err != nil {
			t.Fatal(err)
		}
		if err := <-revoked; !errors.Is(err, ErrEvicted) {
			t.Errorf("revoked with %v", err)
		}
		if len(next) > 0 {
			t.Error("the next one entered before the evicted one had left")
		}
		holder.Leave()
		r := <-next
		if r.err != nil {
			t.Fatal(r.err)
		}
		r.turn.Leave()
		if err := e.Evict(context.Background(), "a_", token); !errors.Is(err, ErrNoTicket) {
			t.Errorf("evicting twice: %v", err)
		}
	})
}

func TestQueuesAreApart(t *testing.T) {
	prefixes := []string{"a_", "a_b_", "a_0", "a_1", "", "a_0000"}
	engines(t, func(t *testing.T, e Engine) {
		for range 2 {
			var turns []Turn
			for _, prefix := range prefixes {
				turns = append(turns, enter(t, e, arrival(prefix)))
			}
			for _, turn := range turns {
				turn.Leave()
			}
		}
	})
}

func TestLockFileNames(t *testing.T) {
	dir := t.TempDir()
	e := openFile(t, dir)
	defer e.Close()
	turn := enter(t, e, arrival("a_"))
	var names []string
	for _, name := range filesOf(t, dir) {
		if !strings.HasPrefix(name, ownFiles) {
			names = append(names, name)
		}
	}
	want := fmt.Sprintf("a_0000%d00200036794192.168.0.1", turn.Token())
	if len(names) != 1 || names[0] != want {
		t.Errorf("lock files %q, want %q", names, want)
	}
	turn.Leave()
	if _, err := os.Stat(filepath.Join(dir, want)); !os.IsNotExist(err) {
		t.Errorf("after leaving: %v", err)
	}
}

// Two engines on one directory are to each other what two processes are.
func TestTwoEnginesOneDirectory(t *testing.T) {
	for name, open := range map[string]func(string, func() time.Time) (lockDir, error){"notified": openLockDir, "polling": openDeaf} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			es := []*File{openFile(t, dir), openFile(t, dir)}
			for _, e := range es {
				e.open = open
			}
			var inside, overlaps, inversions atomic.Int64
			var last atomic.Uint64
			var group sync.WaitGroup
			for i := range 16 {
				group.Go(func() {
					for range 50 {
						turn, err := es[i%2].Enter(context.Background(), arrival("a_"))
						if err != nil {
							t.Error(err)
							return
						}
						if inside.Add(1) > 1 {
							overlaps.Add(1)
						}
						if last.Swap(turn.Token()) >= turn.Token() {
							inversions.Add(1)
						}
						inside.Add(-1)
						turn.Leave()
					}
				})
			}
			group.Wait()
			if overlaps.Load() != 0 || inversions.Load() != 0 {
				t.Errorf("%d overlaps, %d inversions", overlaps.Load(), inversions.Load())
			}
		})
	}
}

func BenchmarkEnterLeave(b *testing.B) {
	for _, clients := range []int{1, 32, 1000} {
		b.Run(fmt.Sprintf("file/clients=%d", clients), func(b *testing.B) { benchmarkEngine(b, openFile(b, b.TempDir()), clients) })
		b.Run(fmt.Sprintf("memory/clients=%d", clients), func(b *testing.B) { benchmarkEngine(b, NewMemory(MemoryOptions{}), clients) })
	}
}

func benchmarkEngine(b *testing.B, e Engine, clients int) {
	defer e.Close()
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				enter(b, e, arrival("a_")).Leave()
			}
		})
	}
	group.Wait()
}
