package response

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
)

// kept is the memory of a response.
type kept struct {
	before snapshot // the header before the handlers
	head   snapshot // the header when they gave the status
	body   bytes.Buffer
}

var (
	pool      = sync.Pool{New: func() any { return new(kept) }}
	scratches = sync.Pool{New: func() any { return new([16 << 10]byte) }}
)

// reusable is how much memory of a body is used again.
const reusable = 1 << 20

func (k *kept) free() {
	if k.body.Cap() > reusable {
		return
	}
	clear(k.before)
	clear(k.head)
	k.before, k.head = k.before[:0], k.head[:0]
	k.body.Reset()
	pool.Put(k)
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
