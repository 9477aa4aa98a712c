package requestbody

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// newRequest has a body of that text. It is of an HTTP/1 client, and has no length if
// length is less than 0.
func newRequest(text string, length int64) *http.Request {
	r := httptest.NewRequest("POST", "/", io.NopCloser(strings.NewReader(text)))
	r.ContentLength = length
	return r
}

// No body is no work, and what an outer queue has read is not read again.
func TestNothingToRead(t *testing.T) {
	outer := newRequest("x", 1)
	first, _ := Read(outer, Limits{10, 0})
	for _, r := range []*http.Request{
		httptest.NewRequest("GET", "/", http.NoBody), {}, newRequest("", 0), outer,
	} {
		before := r.Body
		if b, err := Read(r, Limits{10, 0}); b != nil || err != nil || r.Body != before {
			t.Errorf("%v: %v, %v", r, b, err)
		}
	}
	if first.size != 1 {
		t.Error("the outer body was not read")
	}
	// Bug: what an outer queue had read passed an inner one with a smaller buffer.
	if _, err := Read(outer, Limits{0, 0}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("in a smaller buffer: %v", err)
	}
	r := newRequest("", -1) // HTTP/3 does not know that a GET has no body
	if b, err := Read(r, Limits{10, 0}); err != nil || b.size != 0 {
		t.Errorf("%v, %v", b, err)
	}
}

// Memory grows with the received part of a body. Bug: a hundred heads that announced
// large bodies took 1.4 GB.
func TestAnnouncedBodyTakesNoMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		r := newRequest("", 16<<20)
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF)))
		if _, err := Read(r, Limits{16 << 20, 0}); err == nil {
			t.Fatal("half a body is a body")
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
		t.Errorf("100 requests that have sent a byte took %d MiB", took>>20)
	}
}

// A body can be read after a proxy has closed it, but not in two parts. Bug: PHP in an error route got
// the rest with the length of the whole, and waited for more.
func TestReadAfterClose(t *testing.T) {
	for before, want := range map[int64]string{0: "hello <nil>", 2: " " + errConsumed.Error(), 5: " <nil>"} {
		for _, closes := range []func(*Body){func(b *Body) { _ = b.Close() }, func(b *Body) { b.FreeAfter(t.Context()) }} {
			r := newRequest("hello", 5)
			b, _ := Read(r, Limits{10, 0})
			_, _ = io.CopyN(io.Discard, r.Body, before)
			closes(b)
			b.Free()
			if text, err := io.ReadAll(r.Body); fmt.Sprint(string(text), " ", err) != want {
				t.Errorf("after %d bytes: %q, %v; expected %s", before, text, err, want)
			}
		}
	}
	(*Body)(nil).FreeAfter(t.Context())
}

// Bodies are read whole, with a length or without, unless they are larger than the buffers. Bug: one
// byte too many was taken if the body ended with it. Nobody can read the rest of a body that is too
// large.
func TestEachSize(t *testing.T) {
	const most = 1 << 10
	all := make([]byte, most+1)
	_, _ = rand.Read(all)
	for _, limits := range []Limits{{most, 0}, {0, most}, {most / 2, most / 2}} {
		for i := range 2 * len(all) {
			text, length := string(all[:i/2+1]), int64(-1)
			if i%2 > 0 {
				length = int64(len(text))
			}
			r := newRequest("", length)
			r.Body = io.NopCloser(iotest.DataErrReader(strings.NewReader(text)))
			b, err := Read(r, limits)
			if tooLarge := errors.Is(err, ErrTooLarge); tooLarge != (len(text) > most) || !tooLarge && err != nil {
				t.Errorf("%v, %d bytes: %v", limits, len(text), err)
			}
			if got, readErr := io.ReadAll(r.Body); readErr != err || err == nil && string(got) != text {
				t.Errorf("%v, %d bytes: a handler reads %d bytes, or others, %v", limits, len(text), len(got), readErr)
			}
			// Bug: without the field, PHP got the length of no body that came in chunks, and answered 411.
			if got := r.Header.Get("Content-Length"); length < 0 && err == nil && got != fmt.Sprint(len(text)) {
				t.Errorf("%v, %d bytes: the length is %q", limits, len(text), got)
			}
			b.Free()
		}
	}
}

// Bug: the turn of a request whose body was here was revoked as if the client were still
// sending, which ended the request's context. The error routes need that.
func TestUploadingUntilTheEnd(t *testing.T) {
	r := newRequest("hello", -1)
	upload := UploadOf(r)
	before := upload.Uploading()
	if text, err := io.ReadAll(r.Body); string(text) != "hello" || err != nil || !before || upload.Uploading() || UploadOf(r) != upload {
		t.Errorf("%q, %v, uploading %t, then %t", text, err, before, upload.Uploading())
	}
	buffered := newRequest("hello", 5)
	_, _ = Read(buffered, Limits{10, 0})
	if UploadOf(newRequest("", 0)).Uploading() || UploadOf(buffered).Uploading() || !UploadOf(newRequest("hello", 5)).Uploading() {
		t.Error("who uploads is wrong")
	}
}

// Nothing is taken for a whole body that is not: who reads it after another handler is refused. Bug: an
// error route's queue announced the rest of a body as the whole, and the upstream acted on it.
func TestPartsOfBodies(t *testing.T) {
	read := func(r *http.Request, n int64) *http.Request {
		_, _ = io.CopyN(io.Discard, r.Body, n)
		return r
	}
	buffered := func(r *http.Request) *http.Request {
		_, _ = Read(r, Limits{2, 10})
		return r
	}
	streaming := func(r *http.Request) *http.Request {
		UploadOf(r)
		return r
	}
	for name, test := range map[string]struct {
		r      *http.Request
		refuse bool
	}{
		"whole":               {streaming(newRequest("hello", -1)), false},
		"begun":               {read(newRequest("hello", 5), 2), true},
		"ended":               {read(newRequest("hello", 5), 9), true},
		"streamed":            {read(streaming(newRequest("hello", -1)), 2), true},
		"buffered":            {buffered(newRequest("hello", 5)), false},
		"buffered, begun":     {read(buffered(newRequest("hello", 5)), 4), true},
		"buffered, ended":     {read(buffered(newRequest("hello", 5)), 9), false}, // proxies see the length
		"buffered in a queue": {buffered(buffered(newRequest("hello", -1))), false},
	} {
		b, err := Read(test.r, Limits{10, 0})
		failure, _ := errors.AsType[caddyhttp.HandlerError](err)
		if refused := failure.StatusCode == http.StatusBadGateway; refused != test.refuse || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b.Free()
	}
	if _, err := Sum(read(buffered(newRequest("hello", 5)), 9)); !errors.Is(err, errConsumed) {
		t.Errorf("the sum of a body that was read: %v", err)
	}
}

// Needs the race detector. Bugs: a proxy's transport may still send the body of a request that was
// answered early, when a queue of an error route refuses it, or takes the rest for the whole.
func TestReadWhileItIsSent(t *testing.T) {
	for length, want := range map[int64]error{1 << 30: ErrTooLarge, -1: errConsumed} {
		client, writer := io.Pipe()
		r := newRequest("", length)
		r.Body = client
		body := UploadOf(r)
		go func() { _, _ = io.Copy(writer, iotest.OneByteReader(rand.Reader)) }()
		time.AfterFunc(time.Millisecond, func() { _, _ = body.Read(make([]byte, 1)); _ = writer.Close() })
		if _, err := Read(r, Limits{1 << 20, 0}); !errors.Is(err, want) {
			t.Errorf("length %d: %v; expected %v", length, err, want)
		}
		_, _ = io.Copy(io.Discard, client)
	}
}
