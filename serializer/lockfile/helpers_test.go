//go:build unix && !aix && !solaris

package lockfile

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// node is an engine with what tests look at below it.
type node struct {
	*serializer.Engine
	store *Store
	log   *logged
}

var must = testlease.Must

// openTwo opens two engines on a new directory.
func openTwo(t testing.TB) (dir string, one, two node) {
	t.Helper()
	dir = t.TempDir()
	return dir, open(t, dir), open(t, dir)
}

func openStore(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, Options{})
	must(t, err)
	return s
}

// open opens an engine, as another process would.
func open(t testing.TB, path string) node { return openWith(t, path, nil) }

// openAt opens an engine whose clock is off.
func openAt(t testing.TB, path string, off time.Duration) node {
	return openWith(t, path, func() time.Time { return time.Now().Add(off) })
}

func openWith(t testing.TB, path string, clock func() time.Time) node {
	t.Helper()
	log := new(logged)
	logger := slog.New(slog.NewTextHandler(log, nil))
	s, err := Open(path, Options{Clock: clock, Log: logger})
	must(t, err)
	n := node{serializer.New(s, serializer.Options{Log: logger}), s, log}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// dir is the directory that the store works in.
func (n node) dir() *directory { return n.store.current.Load() }

// ownFile is the name of an engine's owner file.
func (n node) ownFile() string {
	defer n.deaf()()
	return n.dir().own.Name
}

// deaf keeps an engine from noticing anything in its directory until the result is called.
func (n node) deaf() (hear func()) {
	d := n.dir()
	d.syncing.Lock()
	return sync.OnceFunc(d.syncing.Unlock)
}

// age makes an unowned file look abandoned.
func (n node) age(t testing.TB, path string) {
	t.Helper()
	d := n.dir()
	d.syncing.Lock()
	defer d.syncing.Unlock()
	r := d.remote[filepath.Base(path)]
	if r == nil {
		t.Fatalf("%s is not known", path)
		return
	}
	r.since = time.Now().Add(-unownedTime - time.Millisecond)
}

type logged struct{ testprocess.Log }

func (l *logged) has(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(l.String(), s) })
}

func arrival(queue string) serializer.Arrival {
	return serializer.Arrival{Queue: queue, Client: "192.168.0.1:36794"}
}

// started enters a queue in another goroutine.
func started(e node, queue string) *testlease.Caller { return startedFor(e, arrival(queue)) }

func startedFor(e node, a serializer.Arrival) *testlease.Caller { return testlease.Arrive(e.Engine, a) }

// joined is like started, and returns when the ticket is in its queue.
func joined(t testing.TB, e node, queue string) *testlease.Caller {
	t.Helper()
	return testlease.Join(t, e.Engine, arrival(queue))
}

func enter(t testing.TB, e node, queue string) serializer.Turn {
	t.Helper()
	return started(e, queue).Wait(t)
}

// stillWaits shows that nobody enters within a tick.
func stillWaits(t testing.TB, waiting *testlease.Caller, why string) {
	t.Helper()
	if wait.Poll(3*tickInterval/2, waiting.Over) {
		t.Fatalf("%s: it does not wait; error %v", why, waiting.Err)
	}
}

// wantRefusal expects that an arrival is refused for a cause, which is the storage, or that the
// engine was closed.
func wantRefusal(t testing.TB, waiting *testlease.Caller, cause error) {
	t.Helper()
	err := waiting.End(t)
	if !errors.Is(err, cause) || !errors.Is(err, serializer.ErrStorage) && cause != serializer.ErrClosed {
		t.Errorf("got error %v; expected a failure of the storage, because of: %v", err, cause)
	}
	if err == nil {
		waiting.Turn.Leave()
	}
}

func queueOf(t testing.TB, e node, queue string) serializer.QueueState {
	t.Helper()
	queues, err := e.Queues(t.Context())
	must(t, err)
	for _, q := range queues {
		if q.Prefix == queue {
			return q
		}
	}
	return serializer.QueueState{}
}

func length(t testing.TB, e node, queue string) int {
	t.Helper()
	return len(queueOf(t, e, queue).Tickets)
}

// tokenAt is the number of a ticket in a queue.
func tokenAt(t testing.TB, e node, queue string, i int) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(queueOf(t, e, queue).Tickets[i].Token, 10, 64)
	must(t, err)
	return n
}

func filesOf(t testing.TB, dir string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		files = append(files, e.Name())
	}
	return files
}

// filesWith returns the files whose names begin with a prefix.
func filesWith(t testing.TB, dir, prefix string) []string {
	t.Helper()
	return slices.DeleteFunc(filesOf(t, dir), func(file string) bool { return !strings.HasPrefix(file, prefix) })
}

// fileOf is the path of the lock file with a number, or "".
func fileOf(t testing.TB, dir string, number uint64) string {
	t.Helper()
	for _, file := range filesOf(t, dir) {
		if n, err := ParseName(file); err == nil && n.Number == number {
			return filepath.Join(dir, file)
		}
	}
	return ""
}

// remove removes a file that may disappear by itself.
func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func touch(t testing.TB, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	must(t, os.WriteFile(file, nil, 0o600))
	return file
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// unownedName is the name of a file as mod_serializer makes it.
func unownedName(queue string) string {
	return Name{Prefix: queue, Number: uint64(time.Now().UnixMicro()), Client: netip.MustParseAddrPort(arrival("").Client)}.String()
}

// wantFiles closes engines, and expects that nothing but some files is left.
func wantFiles(t testing.TB, dir string, want []string, engines ...node) {
	t.Helper()
	for _, e := range engines {
		must(t, e.Close())
		wait.Until(t, "the store is closed", func() bool {
			defer e.deaf()()
			return e.dir().closed
		})
	}
	wait.Poll(wait.Patience/30, func() bool { return len(filesOf(t, dir)) == len(want) })
	if files := filesOf(t, dir); !slices.Equal(files, want) {
		t.Errorf("left behind: %v; expected %v", files, want)
	}
}
