package uniqueid

import (
	"bufio"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	childRole = "UNIQUEID_TEST_ROLE"
	childFile = "UNIQUEID_TEST_FILE"
)

// childMaker returns what makes IDs in a process that a test has started, each as a key.
func childMaker(role, file string) (func() (key, error), error) {
	switch role {
	case "txid":
		return func() (key, error) { return txidKey(NewTXID()), nil }, nil
	case "run":
		runs := &FileRunStore{file}
		return func() (key, error) {
			run, err := runs.NextRun(context.Background())
			return key{low: uint64(run)}, err
		}, nil
	case "call_number":
		gen, err := NewCallNumberGenerator(&FileRunStore{file})
		return func() (key, error) {
			number, err := gen.New(context.Background())
			return key{low: uint64(number)}, err
		}, err
	}
	layout, err := ParseLayout(role)
	if err != nil {
		return nil, err
	}
	node, err := FixedNode(netip.MustParseAddr("192.0.2.7"), uint32(os.Getpid()))
	if err != nil {
		return nil, err
	}
	gen, err := NewUniqueIDGenerator(layout, node)
	return func() (key, error) { return uniqueIDKey(gen.New(time.Now())), nil }, err
}

// runChild writes keys to standard output until nobody reads them.
func runChild(role string) error {
	next, err := childMaker(role, os.Getenv(childFile))
	if err != nil {
		return err
	}
	size := 1 << 16
	if role == "run" { // which takes a while: write each
		size = 16
	}
	out := bufio.NewWriterSize(os.Stdout, size)
	for {
		k, err := next()
		if err != nil {
			return err
		}
		if err := binary.Write(out, binary.BigEndian, []uint64{k.high, k.low}); err != nil {
			return nil //nolint:nilerr // the test has ended
		}
	}
}

// makeAndKill starts a process that makes IDs, ends it as kill -9 does when it has made so
// many, and returns all.
func makeAndKill(t *testing.T, role, file string, most int) (keys []key) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childFile+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	in := bufio.NewReaderSize(out, 1<<16)
	words := make([]uint64, 2)
	for binary.Read(in, binary.BigEndian, words) == nil { // until all is read that it has written
		if keys = append(keys, key{words[0], words[1]}); len(keys) == most {
			err = cmd.Process.Kill()
		}
	}
	if waitErr := cmd.Wait(); err != nil || waitErr == nil || len(keys) < most {
		t.Errorf("made %d IDs, killed with %v, ended with %v", len(keys), err, waitErr)
	}
	return keys
}

// Processes that run at the same time make no ID twice, nor do those that follow when they
// were killed in the middle of whatever they did.
func TestKilledProcesses(t *testing.T) {
	for role, most := range map[string]int{"run": 100, "call_number": 60_000, "txid": 60_000, "classic": 60_000, "threaded": 60_000} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "runs")
			var keys []key
			for range scaled(3, 100) {
				var made [2][]key
				var both sync.WaitGroup
				for i := range made {
					most := 1 + rand.IntN(scaled(most, 10*most))
					both.Go(func() { made[i] = makeAndKill(t, role, file, most) })
				}
				both.Wait()
				keys = slices.Concat(keys, made[0], made[1])
			}
			t.Logf("%d IDs of processes that were killed", len(keys))
			wantDistinct(t, keys)
		})
	}
}
