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

// 50,000 tickets may be out, in any state and with any rule. The others know each of them. The
// places of those that have gone are used again. A ticket for which there is no room is refused.
func TestWords(t *testing.T) {
	own, remote, _ := openPair(t)
	type ticket struct {
		place uint64
		state State
		rule  serializer.Rule
	}
	number := uint64(name.MinNumber) + rand.Uint64N(1<<50)
	for range 3 {
		tickets := make(map[uint64]ticket)
		for range 50_000 {
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
		if damage, err := own.Repair(); damage != nil || err != nil {
			t.Error(damage, err)
		}
	}
	for n := 0; ; n++ {
		if _, err := own.Put(number+uint64(n), fileOf(number), serializer.Rule{}); err != nil {
			break
		} else if n > 1<<placeBits {
			t.Fatal("there is room for more tickets than places")
		}
	}
}

// Bug: a process that had not opened the newest file yet did not see words that were written then, and
// took the tickets for those of another program.
func TestEarlierFile(t *testing.T) {
	own, remote, path := openPair(t)
	testlease.Must(t, os.Remove(path))
	testlease.Must(t, own.Renew())
	_, err := own.Put(name.MinNumber, fileOf(name.MinNumber), serializer.Rule{})
	testlease.Must(t, err)
	if state, _, ok := remote.Find(name.MinNumber, fileOf(name.MinNumber)); !ok || state != Waiting {
		t.Errorf("the ticket is read as %d from the file that was opened before", state)
	}
}
