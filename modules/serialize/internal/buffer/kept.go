package buffer

import (
	"net/http"
	"slices"
	"sync"
)

// chunk is a part of what is kept. The first one also has room for two headers, so that
// a small response needs no other memory.
type chunk struct {
	next         *chunk
	length       int
	before, head snapshot
	data         [16<<10 - 64]byte // with the rest, a size that is allocated without waste
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk() *chunk { return chunks.Get().(*chunk) }

func (c *chunk) free() {
	c.next, c.length = nil, 0
	chunks.Put(c)
}

func (c *chunk) isFull() bool { return c.length == len(c.data) }

// append copies as much of p as there is room for. It returns how much.
func (c *chunk) append(p []byte) int {
	n := copy(c.data[c.length:], p)
	c.length += n
	return n
}

// snapshot is a header as it was at some time. It is cheaper than a map.
type snapshot []field

type field struct {
	name   string
	values []string
}

func (s *snapshot) take(header http.Header) {
	for name, values := range header {
		*s = append(*s, field{name, slices.Clip(values)})
	}
}

// equals reports whether a header is as it was.
func (s snapshot) equals(header http.Header) bool {
	return len(s) == len(header) && !slices.ContainsFunc(s, func(f field) bool {
		values, ok := header[f.name]
		return !ok || !slices.Equal(values, f.values)
	})
}

// restore makes a header what it was.
func (s snapshot) restore(header http.Header) {
	clear(header)
	for _, f := range s {
		header[f.name] = f.values
	}
}

// emptied returns the memory of a snapshot, to be used again.
func (s snapshot) emptied() snapshot {
	clear(s)
	return s[:0]
}
