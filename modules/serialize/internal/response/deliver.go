package response

import (
	"maps"
	"net/http"
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
		b.kept.before.restore(b.w.Header())
		if b.uploads() && b.major == 1 {
			b.w.Header().Set("Connection", "close") // nobody knows where its next request begins
		}
		return caddyhttp.Error(http.StatusGatewayTimeout, cause)
	case b.aborted:
		if b.flushed { // reverse_proxy flushes, so that the client sees the part
			_ = b.send(nil, false)
		}
		panic(http.ErrAbortHandler)
	case b.status != 0 && err != nil:
		b.kept.before.restore(b.w.Header())
	case b.status != 0:
		_ = b.send(nil, true) // if the client has gone, nobody needs to know
	}
	return err
}

// Close frees the memory. Deliver does so, too, but not every handler gets there.
func (b *Response) Close() {
	b.settle()
	if b.kept != nil {
		b.kept.free()
		b.kept = nil
	}
}

// send writes the head and what was kept. next is the body after that; if the response
// is whole, there is none.
func (b *Response) send(next []byte, whole bool) error {
	b.sent = true
	header, body := b.w.Header(), b.kept.body.Bytes()
	var late http.Header // what the handlers have made of it since they gave the status
	if !b.kept.head.equals(header) {
		late = maps.Clone(header)
		b.kept.head.restore(header)
	}
	if b.major == 3 {
		sniff(header, body, next)
	}
	b.w.WriteHeader(b.status)
	var err error
	if len(body) > 0 {
		_, err = b.w.Write(body)
	}
	undeclared := addTrailers(header, late)
	if b.flushed && err == nil && (undeclared || !whole) {
		// HTTP/1 sends such trailers only if the response is in chunks.
		_ = http.NewResponseController(b.w).Flush() // a client that has gone fails again
	}
	return err
}

// sniff sets the type of a body as the server does. That of HTTP/3 does so only for
// small writes, and for those before the status.
func sniff(header http.Header, body, next []byte) {
	_, has := header["Content-Type"]
	if has || header.Get("Content-Encoding") != "" || len(body)+len(next) == 0 {
		return
	}
	if len(body) == 0 {
		body = next
	}
	header.Set("Content-Type", http.DetectContentType(body))
}

// addTrailers adds what was set late to a header that has been sent, if it is a trailer.
// It reports whether one was not declared before.
func addTrailers(header, late http.Header) (undeclared bool) {
	declared := strings.Join(header["Trailer"], ",")
	for name, values := range late {
		prefixed := strings.HasPrefix(name, http.TrailerPrefix)
		undeclared = undeclared || prefixed
		if prefixed || isListed(name, declared) {
			header[name] = values
		}
	}
	return undeclared
}

func isListed(name, list string) bool {
	for listed := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(listed), name) {
			return true
		}
	}
	return false
}
