package uniqueid

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// long raises the uniqueness tests from a million IDs to fifty million:
//
//	go test -run 'Unique|Kill' -timeout 60m -v ./uniqueid -long
var long = flag.Bool("long", false, "make 50 million IDs of each scheme and kill many more processes")

// TestMain runs the tests or, where a test has started this binary again, the
// part of the test that is a process of its own.
func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		if err := runChild(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// scaled is how often to do something: short, or long with the flag.
func scaled(short, longer int) int {
	if *long {
		return longer
	}
	return short
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fakeClock is a clock that tests set. Each monotonic reading moves it on by
// tick.
type fakeClock struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
	tick time.Duration
}

func newFakeClock(tick time.Duration) *fakeClock {
	return &fakeClock{wall: time.UnixMilli(1_700_000_000_000), tick: tick}
}

func (c *fakeClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *fakeClock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono += c.tick
	c.wall = c.wall.Add(c.tick)
	return c.mono
}

// pass lets time pass.
func (c *fakeClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono += d
	c.wall = c.wall.Add(d)
}

// set sets the time of day without any time passing.
func (c *fakeClock) set(wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = wall
}

// seeded is a source of random bits that is the same in every run of a test.
func seeded() Option { return WithRandom(rand.NewPCG(1, 2)) }

// key is an ID as two words, for looking for equal ones.
type key struct{ high, low uint64 }

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.high, b.high), cmp.Compare(a.low, b.low))
}

func txidKey(id TXID) key {
	high, low := id.words()
	return key{high, uint64(low)}
}

// uniqueIDKey is what a generator varies: the time, the pid field and the
// counters.
func uniqueIDKey(id UniqueID) key {
	return key{
		uint64(id.Time().Unix())<<32 | uint64(id.Fields().Extra)<<pidBits | uint64(id.Fields().PID),
		uint64(id.Fields().Counter)<<32 | uint64(id.Fields().Thread),
	}
}

// makeFromAllCores makes n IDs in total, some on every core at once. In each
// goroutine, ascends must hold from one ID to the next.
func makeFromAllCores(t *testing.T, n int, ascends func(a, b key) bool, make1 func() key) []key {
	t.Helper()
	cores := runtime.GOMAXPROCS(0)
	keys := make([]key, n/cores*cores)
	began := time.Now()
	var wg sync.WaitGroup
	for mine := range slices.Chunk(keys, n/cores) {
		wg.Go(func() {
			for i := range mine {
				mine[i] = make1()
				if i > 0 && !ascends(mine[i-1], mine[i]) {
					t.Errorf("after %x came %x", mine[i-1], mine[i])
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d IDs from %d cores in %v", len(keys), cores, time.Since(began).Round(time.Millisecond))
	return keys
}

// wantDistinct sorts keys and fails if two are equal.
func wantDistinct(t *testing.T, keys []key) {
	t.Helper()
	slices.SortFunc(keys, compareKeys)
	repeated := 0
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			repeated++
		}
	}
	if repeated > 0 {
		t.Errorf("%d of %d IDs came twice", repeated, len(keys))
	}
}

func anyOrder(_, _ key) bool { return true }

func strictly(a, b key) bool { return compareKeys(a, b) < 0 }

// No ID is made twice on all cores at once.
func TestUnique(t *testing.T) {
	stands, fine := newFakeClock(0), newFakeClock(time.Nanosecond)
	inOneLane, inManyLanes := NewTXIDGenerator(WithClock(stands)), NewTXIDGenerator(WithClock(fine))
	fine.tick = 0 // it stands still once the generator has found it fine
	if !inOneLane.coarse || inManyLanes.coarse {
		t.Fatal("a clock that stands still is said to be fine, or another one not")
	}
	sharded, numbers := Must(NewShardedIDGenerator(16)), Must(NewCallNumberGenerator(Must(NewFileRunStore(filepath.Join(t.TempDir(), "runs")))))
	defer numbers.Close()
	type test struct {
		n, long int
		ascends func(a, b key) bool
		make1   func() key
	}
	tests := map[string]test{
		"txid":                                  {2e6, 50e6, strictly, func() key { return txidKey(NewTXID()) }},
		"txid, while the clock stands":          {3e5, 50e6, strictly, func() key { return txidKey(inOneLane.New()) }},
		"txid, while it stands, in a lane each": {3e5, 10e6, anyOrder, func() key { return txidKey(inManyLanes.New()) }},
		"sharded_id":                            {3e5, 50e6, strictly, func() key { return key{low: uint64(sharded.New().micros)} }},
		"call_number": {3e5, 50e6, anyOrder, func() key {
			number, err := numbers.New(t.Context())
			if err != nil {
				t.Error(err)
			}
			return key{low: uint64(number)}
		}},
	}
	for layout := range layouts {
		gen := newUniqueIDs(Layout(layout))
		tests[Layout(layout).String()] = test{3e5, 50e6, anyOrder, func() key { return uniqueIDKey(gen.New(time.Now())) }}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantDistinct(t, makeFromAllCores(t, scaled(tt.n, tt.long), tt.ascends, tt.make1)) })
	}
}

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
