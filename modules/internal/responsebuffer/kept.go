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
	before http.Header // of the client's writer, before the handlers
	head   http.Header // when they gave the status
	body   bytes.Buffer
}

// restore makes a header what it was.
func restore(header, was http.Header) {
	clear(header)
	maps.Copy(header, was)
}

var pool = sync.Pool{New: func() any { return &kept{before: make(http.Header), head: make(http.Header)} }}

// keep begins to keep a response. free ends it.
func keep(before http.Header) *kept {
	k := pool.Get().(*kept)
	maps.Copy(k.before, before)
	return k
}

// send writes the head and what was kept of the body.
func (k *kept) send(w http.ResponseWriter, status int) (err error) {
	header, body := w.Header(), k.body.Bytes()
	var late http.Header // what the handlers have made of it since they gave the status
	if !maps.EqualFunc(k.head, header, slices.Equal[[]string]) {
		late = header.Clone()
		restore(header, k.head)
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
	if k.body.Cap() > reusable || len(k.before)+len(k.head) > reusableFields {
		return
	}
	clear(k.before)
	clear(k.head)
	k.body.Reset()
	pool.Put(k)
}
