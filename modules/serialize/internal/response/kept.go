package response

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// isStream reports whether a response is not kept, since it is of a kind that its client
// reads while it is being written.
func isStream(header http.Header) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
	case "text/event-stream", "application/x-ndjson", "multipart/x-mixed-replace":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc") || // and application/grpc+proto, application/grpc-web
		strings.EqualFold(header.Get("X-Accel-Buffering"), "no") || // as nginx knows it
		caddyhttp.IsIncremental(header)
}

// kept is what the client has not got yet of a response.
type kept struct {
	before http.Header // of the client's writer, before the handlers
	head   http.Header // when they gave the status
	body   bytes.Buffer
}

var pool = sync.Pool{New: func() any { return &kept{before: make(http.Header), head: make(http.Header)} }}

// keep begins to keep a response. free ends it.
func keep(before http.Header) *kept {
	k := pool.Get().(*kept)
	maps.Copy(k.before, before)
	return k
}

// send writes the head and what was kept of the body.
func (k *kept) send(w http.ResponseWriter, status int) error {
	header, body := w.Header(), k.body.Bytes()
	var late http.Header // what the handlers have made of it since they gave the status
	if !maps.EqualFunc(header, k.head, slices.Equal) {
		late = header.Clone()
		replace(header, k.head)
		for name, values := range late {
			if strings.HasPrefix(name, http.TrailerPrefix) {
				header[name] = values // or HTTP/1 would leave no room for trailers
			}
		}
	}
	w.WriteHeader(status)
	var err error
	if len(body) > 0 {
		_, err = w.Write(body)
	}
	for name, values := range late { // of which the server picks the trailers
		if !slices.Equal(values, k.head[name]) {
			header[name] = values
		}
	}
	return err
}

// replace makes a header what another one is.
func replace(header, by http.Header) {
	clear(header)
	maps.Copy(header, by)
}

// reusable is how much memory of a body is used again, in bytes.
const reusable = 1 << 20

func (k *kept) free() {
	if k.body.Cap() > reusable || len(k.head) > 100 { // a map never shrinks
		return
	}
	clear(k.before)
	clear(k.head)
	k.body.Reset()
	pool.Put(k)
}
