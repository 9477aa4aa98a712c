package orderly

import (
	"bytes"
	"io"
	"testing"
)

// A body that fits in memory costs two pieces of memory: itself, and what it is
// read from.
func TestAllocationsOfABody(t *testing.T) {
	text := bytes.Repeat([]byte("x"), 1<<10)
	source := bytes.NewReader(text)
	into := make([]byte, 2<<10)
	body := io.NopCloser(source)
	got := testing.AllocsPerRun(500, func() {
		source.Reset(text)
		held := &heldBody{rest: body}
		if err := held.readMemory(64<<10, int64(len(text))); err != io.EOF {
			t.Fatal(err)
		}
		held.ended = true
		if n, err := held.Read(into); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	})
	if got > 2 {
		t.Errorf("a body allocates %.0f times", got)
	}
}

// Memory grows with what has come, up to what the buffer takes and one byte.
func TestMemoryOfABody(t *testing.T) {
	for _, c := range []struct{ come, length, limit, most int64 }{
		{1, 1 << 20, 1 << 30, firstRead + 1},
		{10_000, -1, 1 << 30, 4*firstRead + 4},
		{1 << 20, -1, 100_000, 100_001},
		{1 << 20, 1 << 20, 100_000, 100_001},
		{100, 100, 100_000, 101},
	} {
		held := &heldBody{rest: io.NopCloser(io.LimitReader(endless{}, c.come))}
		if err := held.readMemory(c.limit, c.length); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if got := int64(cap(held.memory)); got > c.most {
			t.Errorf("%d bytes of %d, with a buffer of %d: %d bytes of memory", c.come, c.length, c.limit, got)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
