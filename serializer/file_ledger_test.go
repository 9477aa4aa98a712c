//go:build unix && !aix && !solaris

package serializer

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// openLedgers makes a ledger, and opens it as another process does.
func openLedgers(t *testing.T) (*ownLedger, *otherLedger) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "owner"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	own, err := newLedger(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	other := openLedger(int(f.Fd()))
	if other == nil {
		t.Fatal("the ledger cannot be opened")
	}
	t.Cleanup(func() { own.close(); other.close() })
	return own, other
}

// A ledger is a set of numbers of any size: many that come and go, few that stay, and
// more than its first capacity.
func TestLedgerIsASet(t *testing.T) {
	for _, most := range []int{1, 10, 1000, 5000} {
		own, other := openLedgers(t)
		var out []uint64
		stamp := uint64(minStamp)
		for range 20_000 {
			if len(out) < most && rand.IntN(2) == 0 || len(out) == 0 {
				stamp += 1 + rand.Uint64N(5)
				if err := own.add(stamp); err != nil {
					t.Fatal(err)
				}
				out = append(out, stamp)
				continue
			}
			i := rand.IntN(len(out))
			own.strike(out[i])
			if s := other.standing(out[i]); s != isOver {
				t.Fatalf("%d was struck, and is %v", out[i], s)
			}
			out = slices.Delete(out, i, i+1)
		}
		got, ok := other.outstanding()
		if !ok || !slices.Equal(got, out) {
			t.Errorf("at most %d: %d are out, want %d", most, len(got), len(out))
		}
		for _, stamp := range out {
			if s := other.standing(stamp); s != isOut {
				t.Errorf("%d is %v", stamp, s)
			}
		}
	}
}

// A reader never misses a number that is always out, whatever the owner writes, moves and
// grows at the same time.
func TestLedgerIsReadMeanwhile(t *testing.T) {
	own, other := openLedgers(t)
	var done atomic.Bool
	stays := []uint64{minStamp + 1, minStamp + 500, minStamp + 1500}
	if err := own.merge(stays); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		defer done.Store(true)
		for i := range uint64(300_000) {
			if err := own.add(minStamp + 2000 + i); err != nil {
				t.Error(err)
				return
			}
			if i >= 3000 {
				own.strike(minStamp + 2000 + i - 3000)
			}
		}
	})
	for !done.Load() {
		for _, stamp := range stays {
			if s := other.standing(stamp); s != isOut && s != isUnclear {
				t.Fatalf("%d is missing", stamp)
			}
		}
	}
	group.Wait()
}

// Finding a number costs a few memory reads.
func BenchmarkLedger(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "owner"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	own, err := newLedger(int(f.Fd()))
	if err != nil {
		b.Fatal(err)
	}
	other := openLedger(int(f.Fd()))
	stamp := uint64(minStamp)
	for b.Loop() {
		stamp++
		if err := own.add(stamp); err != nil {
			b.Fatal(err)
		}
		own.strike(stamp)
		if other.standing(stamp) != isOver {
			b.Fatal("a number that was struck is still out")
		}
	}
	own.close()
	other.close()
}
