package serializer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

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

func arrival(queue string) Arrival {
	return Arrival{Queue: queue, Client: netip.MustParseAddrPort("192.168.0.1:36794"), Timeout: patience}
}

func enter(t testing.TB, e Engine, a Arrival) Turn {
	t.Helper()
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// join starts an arrival and returns once it has its ticket.
func join(t testing.TB, e Engine, a Arrival) <-chan result {
	t.Helper()
	before := length(t, e, a.Queue)
	done := make(chan result, 1)
	go func() {
		turn, err := e.Enter(context.Background(), a)
		done <- result{turn, err}
	}()
	wait.Until(t, "the arrival has its ticket", func() bool { return length(t, e, a.Queue) > before || len(done) > 0 })
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

func wantRefusal(t *testing.T, err error, reason Reason, cause error) {
	t.Helper()
	var refused *Refused
	if !errors.As(err, &refused) || refused.Reason != reason || !errors.Is(err, cause) {
		t.Errorf("got %v, want a refusal for %s", err, reason)
	}
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

// No reason is missing from the list, by which the metrics count.
func TestReasons(t *testing.T) {
	text, err := os.ReadFile("engine.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []Reason
	for _, match := range regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		declared = append(declared, Reason(match[1]))
	}
	if len(declared) == 0 || !slices.Equal(declared, Reasons()) {
		t.Errorf("declared are %q; listed are %q", declared, Reasons())
	}
	for err, want := range map[error]Reason{
		ErrTimeout: ReasonTimeout, ErrFull: ReasonFull, ErrSuperseded: ReasonSuperseded, ErrEvicted: ReasonEvicted, ErrLost: ReasonLost,
		ErrStorage: ReasonStorage, ErrClosed: ReasonStorage, context.Canceled: ReasonGone,
	} {
		if got := ReasonOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is refused for %q; expected %q", err, got, want)
		}
	}
}
