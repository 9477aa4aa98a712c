//go:build linux

package server

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestGaps(t *testing.T) {
	if got := Gaps([]Visit{{7000, 9000}, {0, 5000}, {10_000, 20_000}}); !slices.Equal(got, []time.Duration{1000, 2000}) {
		t.Errorf("got %v", got)
	}
	if got := Gaps([]Visit{{0, 5000}, {4000, 10_000}}); got[0] >= 0 {
		t.Errorf("two were inside at once, and the gap is %v", got[0])
	}
}

// A visit that is being written does not count.
func TestReadVisits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "visits")
	var text []byte
	for _, at := range []uint64{1, 2, 3, 4, 5} {
		text = binary.LittleEndian.AppendUint64(text, at)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readVisits(file)
	if want := []Visit{{1, 2}, {3, 4}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
