//go:build unix && !aix && !solaris

package owner

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// openPair makes an owner file, and opens it as another process does.
func openPair(t testing.TB) (own *Own, remote *Remote, path string) {
	t.Helper()
	path = t.TempDir()
	d, err := dir.Make(path)
	testlease.Must(t, err)
	if own, err = Make(d, time.Now()); err != nil {
		t.Fatal(err)
	}
	if remote, err = OpenRemote(d, own.Name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		remote.Close()
		d.Close()
	})
	return own, remote, filepath.Join(path, own.Name)
}

func fileOf(number uint64) string { return name.Name{Number: number}.String() }

// Any number of tickets may be out, in any state and with any rule. The others know each
// of them. The places of those that have gone are used again, so the file stops growing.
func TestWordsGrow(t *testing.T) {
	own, remote, path := openPair(t)
	type ticket struct {
		place uint64
		state State
		rule  serializer.Rule
	}
	var size int64
	number := uint64(name.MinNumber) + rand.Uint64N(1<<50)
	for round := range 3 {
		tickets := make(map[uint64]ticket)
		for range 10_000 {
			number += 1 + rand.Uint64N(1000)
			rule := serializer.Rule{Shared: rand.IntN(2) == 0, Limit: rand.IntN(1 << 30)}
			place, err := own.Put(number, fileOf(number), rule)
			testlease.Must(t, err)
			state := []State{Waiting, Inside, Leaving}[rand.IntN(3)]
			own.Set(place, number, state)
			tickets[number] = ticket{place, state, rule}
		}
		standing := 0
		for _, want := range tickets {
			if want.state.Stands() {
				standing++
			}
		}
		if numbers, err := remote.Standing(); err != nil || len(numbers) != standing {
			t.Fatalf("the file has %d tickets that stand, %v; expected %d", len(numbers), err, standing)
		}
		for number, want := range tickets {
			state, rule, _ := remote.Find(number, fileOf(number))
			if err := remote.Check(); err != nil || state != want.state || rule != want.rule || own.State(want.place, number) != want.state {
				t.Fatalf("%d is %+v, and is read as %d, %+v, %v", number, want, state, rule, err)
			}
			own.Set(want.place, number, Gone)
			for _, other := range []uint64{number, number + 1} { // which are not there
				if own.Set(want.place, other, Waiting); own.State(want.place, other) != Gone {
					t.Fatalf("%d was not cleared, or another ticket was set in its place", number)
				}
			}
			if state, _, _ := remote.Find(number, fileOf(number)); state != Gone {
				t.Fatalf("%d is gone, and is read as %d", number, state)
			}
		}
		if err := own.Check(); err != nil {
			t.Error(err)
		}
		info, err := os.Stat(path)
		testlease.Must(t, err)
		if round > 0 && info.Size() > 2*size {
			t.Errorf("the file has grown from %d to %d bytes for as many tickets", size, info.Size())
		}
		size = info.Size()
	}
}

// Bug: a process that had not opened the newest file yet did not see the words of a level
// that was added then, and took the tickets for those of another program. A file that was cut
// has all words again when it grows.
func TestEarlierFilesGrow(t *testing.T) {
	own, remote, path := openPair(t)
	for i := range uint64(10_000) {
		switch i {
		case 2000: // the first words are in many levels now
			testlease.Must(t, os.Truncate(path, 0))
		case 5000:
			testlease.Must(t, own.Renew())
		}
		if _, err := own.Put(name.MinNumber+i, fileOf(name.MinNumber+i), serializer.Rule{}); err != nil {
			t.Fatal(err)
		}
		for _, i := range []uint64{0, i} {
			state, _, ok := remote.Find(name.MinNumber+i, fileOf(name.MinNumber+i))
			if remote.Check() == nil && (!ok || state != Waiting) {
				t.Fatalf("ticket %d is read as %d, from the file that was opened before", i, state)
			}
		}
	}
	if err := remote.Check(); err != nil {
		t.Error(err)
	}
}
