package uniqueid

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	childRole = "UNIQUEID_TEST_ROLE"
	childFile = "UNIQUEID_TEST_FILE"
)

// childRoles are what a process that a test starts can make without end, each
// as a key.
var childRoles = map[string]func(file string) (func() (key, error), error){
	"txid": func(string) (func() (key, error), error) {
		return func() (key, error) { return txidKey(NewTXID()), nil }, nil
	},
	"classic":  func(string) (func() (key, error), error) { return uniqueIDsOfChild(Classic) },
	"threaded": func(string) (func() (key, error), error) { return uniqueIDsOfChild(Threaded) },
	"run": func(file string) (func() (key, error), error) {
		store := NewFileRunStore(file)
		return func() (key, error) {
			run, err := store.NextRun(context.Background())
			return key{low: uint64(run)}, err
		}, nil
	},
	"call_number": func(file string) (func() (key, error), error) {
		gen := NewCallNumberGenerator(NewFileRunStore(file))
		return func() (key, error) {
			number, err := gen.New(context.Background())
			return key{low: uint64(number)}, err
		}, nil
	},
}

// uniqueIDsOfChild are IDs of one address and the process's own pid.
func uniqueIDsOfChild(layout Layout) (func() (key, error), error) {
	node, err := FixedNode(netip.MustParseAddr("192.0.2.7"), uint32(os.Getpid()))
	if err != nil {
		return nil, err
	}
	gen, err := NewUniqueIDGenerator(layout, node)
	if err != nil {
		return nil, err
	}
	return func() (key, error) { return uniqueIDKey(gen.New(time.Now())), nil }, nil
}

// runChild writes keys to standard output until nobody reads them.
func runChild(role string) int {
	next, err := childRoles[role](os.Getenv(childFile))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Runs are few and precious: each is reported at once.
	size := 1 << 16
	if role == "run" {
		size = 16
	}
	out := bufio.NewWriterSize(os.Stdout, size)
	for {
		k, err := next()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := binary.Write(out, binary.BigEndian, []uint64{k.high, k.low}); err != nil {
			return 0
		}
	}
}

// child is a process that makes IDs.
type child struct {
	cmd *exec.Cmd
	out io.Reader
}

func startChild(t *testing.T, role, file string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childFile+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{cmd, bufio.NewReaderSize(out, 1<<16)}
}

// read takes n keys.
func (c *child) read(t *testing.T, n int) []key {
	t.Helper()
	keys := make([]key, n)
	for i := range keys {
		var data [16]byte
		if _, err := io.ReadFull(c.out, data[:]); err != nil {
			t.Error(err)
			return keys[:i]
		}
		keys[i] = key{binary.BigEndian.Uint64(data[:]), binary.BigEndian.Uint64(data[8:])}
	}
	return keys
}

// kill ends the process as kill -9 does, and reads what it had still written.
func (c *child) kill(t *testing.T) []key {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	rest, err := io.ReadAll(c.out)
	if err != nil {
		t.Error(err)
	}
	var keys []key
	for ; len(rest) >= 16; rest = rest[16:] {
		keys = append(keys, key{binary.BigEndian.Uint64(rest), binary.BigEndian.Uint64(rest[8:])})
	}
	if err := c.cmd.Wait(); err == nil {
		t.Error("a process that was killed ended without an error")
	}
	return keys
}

// After a process was killed in the middle of whatever it did, the next makes
// nothing that it had made.
func TestKillAndRestart(t *testing.T) {
	for _, tt := range []struct {
		role  string
		kills int
		most  int // keys to read before the kill
	}{
		{"run", scaled(10, 500), 20},
		{"call_number", scaled(5, 100), 60_000},
		{"txid", scaled(3, 20), 60_000},
		{"classic", scaled(3, 20), 60_000},
		{"threaded", scaled(3, 20), 60_000},
	} {
		t.Run(tt.role, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "runs")
			var keys []key
			for range tt.kills {
				c := startChild(t, tt.role, file)
				keys = append(keys, c.read(t, rand.IntN(tt.most))...)
				keys = append(keys, c.kill(t)...)
			}
			t.Logf("%d IDs of %d processes that were killed", len(keys), tt.kills)
			wantDistinct(t, keys)
		})
	}
}

func TestTwoProcesses(t *testing.T) {
	for _, tt := range []struct {
		role string
		n    int // of each process
	}{
		{"run", scaled(50, 1000)},
		{"call_number", scaled(100_000, 10_000_000)},
		{"txid", scaled(200_000, 25_000_000)},
		{"classic", scaled(200_000, 25_000_000)},
		{"threaded", scaled(200_000, 25_000_000)},
	} {
		t.Run(tt.role, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "runs")
			made := make([][]key, 2)
			children := []*child{startChild(t, tt.role, file), startChild(t, tt.role, file)}
			var wg sync.WaitGroup
			for i, c := range children {
				wg.Go(func() { made[i] = c.read(t, tt.n) })
			}
			wg.Wait()
			keys := append(made[0], made[1]...)
			t.Logf("%d IDs of two processes at once", len(keys))
			for _, c := range children {
				keys = append(keys, c.kill(t)...)
			}
			wantDistinct(t, keys)
		})
	}
}
