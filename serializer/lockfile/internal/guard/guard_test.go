//go:build unix && !aix && !solaris

package guard

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

func openGuard(t testing.TB, path, boot string) *Guard {
	t.Helper()
	d, err := dir.Make(path)
	testlease.Must(t, err)
	g, err := Open(d)
	testlease.Must(t, err)
	if boot != "" {
		g.boot = boot
	}
	t.Cleanup(func() {
		g.Close()
		d.Close()
	})
	return g
}

// Bug: after a power failure, and with a clock that was behind, numbers were issued twice.
// The last number was in the guard file, but not on the disk. The disk certainly has what
// the file held when somebody last waited for it, or anything newer.
func TestNumbersAfterPowerFailure(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, name.Guard)
	now := uint64(time.Now().UnixMicro())
	var last uint64
	for failure := range 30 {
		boot := fmt.Sprintf("start %d", failure)
		guards := []*Guard{openGuard(t, path, boot), openGuard(t, path, boot)}
		var disk []byte
		for turn := range 1 + rand.IntN(30) {
			now += rand.Uint64N(reserved / 4)
			g := guards[rand.IntN(2)]
			recorded, err := g.Last()
			testlease.Must(t, err)
			number := max(now, recorded+1)
			if number <= last {
				t.Fatalf("after %d power failures, turn %d has number %d after %d", failure, turn, number, last)
			}
			bound := g.bound
			testlease.Must(t, g.Record(number))
			if last = number; g.bound != bound { // it has waited for the disk
				if disk, err = os.ReadFile(file); err != nil {
					t.Fatal(err)
				}
			}
			if number > g.bound {
				t.Fatalf("number %d is above the bound %d", number, g.bound)
			}
		}
		if rand.IntN(2) == 0 {
			testlease.Must(t, os.WriteFile(file, disk, 0o600))
		}
		now -= rand.Uint64N(uint64(time.Hour / time.Microsecond))
	}
}

// What somebody else has written to the guard counts as nothing, and is overwritten.
func TestSpoiledGuard(t *testing.T) {
	const good = "00001609693865378515"
	for text, want := range map[string]uint64{
		"":                                      0,
		"nonsense":                              0,
		good:                                    0, // without its end
		good + "\n":                             1609693865378515,
		good + "\n\n\n":                         1609693865378515,
		"99999999999999999999\n":                0,
		"00000000000000000001\n":                0,
		"0000+609693865378515\n":                0,
		good + "\n00001609693900000000 old\n":   1609693900000000,
		good + "\n00001609693900000000 now\n":   1609693865378515,
		good + "\n00009999999999999999 old\n":   1609693865378515,
		good + "\nnonsense of some length here": 1609693865378515,
	} {
		path := t.TempDir()
		testlease.Must(t, os.WriteFile(filepath.Join(path, name.Guard), []byte(text), 0o600))
		g := openGuard(t, path, "now")
		if got, err := g.Last(); got != want || err != nil {
			t.Errorf("%q: the last number is %d, %v; expected %d", text, got, err, want)
		}
		number := uint64(time.Now().UnixMicro())
		testlease.Must(t, g.Record(number))
		again, err := os.ReadFile(filepath.Join(path, name.Guard))
		if got, lastErr := g.Last(); err != nil || got != number || lastErr != nil || !strings.HasPrefix(string(again), fmt.Sprintf("%020d\n", number)) {
			t.Errorf("after %q, %d is recorded as %q", text, number, again)
		}
	}
}

// In a directory that was moved, the guard is still the same one as long as somebody holds a turn.
func TestStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks")
	g := openGuard(t, path, "")
	testlease.Must(t, os.Rename(path, path+".old"))
	moved := g.Check()
	holds := true
	g.Stay(func() bool { return holds })
	stays := g.Check()
	holds = false
	if left := g.Check(); moved != dir.ErrReplaced || stays != nil || left != dir.ErrReplaced {
		t.Errorf("moved: %v; with a holder: %v; without one: %v", moved, stays, left)
	}
}
