package buffer

import (
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Deliver ends the response after the turn. err is what the handlers returned; the
// caller has to return what Deliver returns.
//
// A response that is still kept can be replaced: by the error routes if the handlers
// failed, and by 504 if the turn was revoked. One that has begun can only be broken off,
// by a panic: the client must not take the part that it has for the whole.
func (b *Response) Deliver(err error) error {
	defer b.Close()
	b.settle()
	cause := b.Revoked()
	switch {
	case b.sent && (b.aborted || b.broken || cause != nil && err != nil):
		panic(http.ErrAbortHandler)
	case b.sent:
		return err
	case cause != nil:
		b.before.restore(b.w.Header())
		b.closeAfterUpload()
		return caddyhttp.Error(http.StatusGatewayTimeout, cause)
	case b.aborted:
		if b.flushed { // reverse_proxy flushes, so that the client sees the part
			_ = b.send(nil, false)
			_ = http.NewResponseController(b.w).Flush()
		}
		panic(http.ErrAbortHandler)
	case err != nil:
		if b.status != 0 {
			b.before.restore(b.w.Header())
		}
		return err
	case b.status != 0:
		_ = b.send(nil, true) // if the client has gone, nobody needs to know
	}
	return nil
}

// Close frees the memory. Deliver calls it; it is for handlers that panic.
func (b *Response) Close() {
	b.settle()
	if b.first == nil {
		return
	}
	b.first.before, b.first.head = b.before.emptied(), b.head.emptied()
	b.before, b.head = nil, nil
	b.freeChunks()
}

func (b *Response) freeChunks() {
	for b.first != nil {
		next := b.first.next
		b.first.free()
		b.first = next
	}
	b.last = nil
}

// send writes the head and what was kept. next is the body after that; if the response
// is whole, there is none.
func (b *Response) send(next []byte, whole bool) error {
	b.sent = true
	header := b.w.Header()
	late := b.restoreHead(header)
	if whole {
		b.announce(header, late)
	}
	if b.kept > 0 {
		next = b.first.data[:b.first.length]
	}
	b.sniff(header, next)
	b.w.WriteHeader(b.status)
	err := b.sendChunks()
	addTrailers(header, late)
	if err == nil && whole && b.flushed && hasTrailers(late) {
		// HTTP/1 sends trailers only in chunks, and a response that ends before it was
		// flushed has none.
		err = http.NewResponseController(b.w).Flush()
	}
	return err
}

func (b *Response) sendChunks() error {
	for c := b.first; c != nil && c.length > 0; c = c.next {
		if _, err := b.w.Write(c.data[:c.length]); err != nil {
			return err
		}
	}
	return nil
}

// restoreHead makes the header what it was when the handlers gave the status. If it has
// changed since, what it became is returned.
func (b *Response) restoreHead(header http.Header) (late http.Header) {
	if b.head.equals(header) {
		return nil
	}
	late = maps.Clone(header)
	b.head.restore(header)
	return late
}

// countedByServer is how long a body is whose length net/http tells by itself.
const countedByServer = 2 << 10

// announce sets the length, where net/http would if it kept as much.
func (b *Response) announce(header, late http.Header) {
	if b.kept <= countedByServer || hasTrailers(header) || hasTrailers(late) {
		return
	}
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Trailer"} {
		if _, has := header[name]; has {
			return
		}
	}
	header.Set("Content-Length", strconv.FormatInt(b.kept, 10))
}

// sniff sets the type of a body, as the server does. That of HTTP/3 does so only for
// small writes, and for those before the status.
func (b *Response) sniff(header http.Header, body []byte) {
	if b.request.ProtoMajor != 3 || len(body) == 0 || header.Get("Content-Encoding") != "" {
		return
	}
	if _, has := header["Content-Type"]; !has {
		header.Set("Content-Type", http.DetectContentType(body))
	}
}

// hasTrailers reports whether a header has trailers that were not declared.
func hasTrailers(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// addTrailers adds what was set late to a header that has been sent, if it is a trailer.
func addTrailers(header, late http.Header) {
	if late == nil {
		return
	}
	for name, values := range late {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			header[name] = values
		}
	}
	for _, list := range header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, ok := late[name]; ok {
				header[name] = values
			}
		}
	}
}
