package responsebuffer

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// kept is what the client has not got yet of a response.
type kept struct {
	before snapshot // of the client's writer, before the handlers
	head   snapshot // when they gave the status
	body   bytes.Buffer
}

// snapshot is what a header was at some time. Most have few fields, for which a map would
// take longer than all else here.
type snapshot []field

type field struct {
	name   string
	values []string
}

func (s *snapshot) take(header http.Header) {
	for name, values := range header {
		*s = append(*s, field{name, values})
	}
}

// first is the first value of a field, or "".
func (s snapshot) first(name string) string {
	for _, f := range s {
		if f.name == name && len(f.values) > 0 {
			return f.values[0]
		}
	}
	return ""
}

// is reports whether a header is the same.
func (s snapshot) is(header http.Header) bool {
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

var pool = sync.Pool{New: func() any { return new(kept) }}

// keep begins to keep a response. free ends it.
func keep(before http.Header) *kept {
	k := pool.Get().(*kept)
	k.before.take(before)
	return k
}

// send writes the head and what was kept of the body.
func (k *kept) send(w http.ResponseWriter, status int) (err error) {
	header, body := w.Header(), k.body.Bytes()
	var late http.Header // what the handlers have made of it since they gave the status
	if !k.head.is(header) {
		late = header.Clone()
		k.head.restore(header)
		maps.DeleteFunc(late, func(name string, values []string) bool { return slices.Equal(values, header[name]) })
		for name, values := range late {
			if strings.HasPrefix(name, http.TrailerPrefix) {
				header[name] = values // or HTTP/1 would leave no room for trailers
			}
		}
	}
	w.WriteHeader(status) // which may change it; HTTP/3 sends it later
	if len(body) > 0 {
		_, err = w.Write(body)
	}
	maps.Copy(header, late) // of which the server picks the trailers
	return err
}

// reusable is how much memory is used again: of a body in bytes, and of heads in fields.
const reusable, reusableFields = 1 << 20, 200

func (k *kept) free() {
	if k.body.Cap() > reusable || cap(k.before)+cap(k.head) > reusableFields {
		return
	}
	clear(k.before)
	clear(k.head)
	k.before, k.head = k.before[:0], k.head[:0]
	k.body.Reset()
	pool.Put(k)
}
