package turncontext

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func requestOf(ctx context.Context) *http.Request {
	return httptest.NewRequestWithContext(ctx, "GET", "/", nil)
}

// begin puts a request inside.
func begin(r *http.Request, finish bool, around *Context) *Context {
	c := new(Context)
	c.Init(r, finish, &Turns{around})
	c.Begin(r, nil)
	return c
}

// A revocation reaches the turns inside, whether they begin before it or after it. Bug: an
// outer queue's hold_timeout had no effect behind an inner one.
func TestNestedRevocation(t *testing.T) {
	for _, finish := range []bool{true, false} {
		r := requestOf(t.Context())
		outer := begin(r, true, nil)
		before := begin(requestOf(context.WithValue(r.Context(), new(int), 1)), finish, outer)
		if !outer.Revoke(io.EOF) || outer.Revoke(io.ErrNoProgress) {
			t.Error("not the first revocation counts")
		}
		after := begin(r, finish, outer)
		for _, c := range []*Context{outer, before, after} {
			if err := c.Err(); !errors.Is(err, io.EOF) || !errors.Is(err, context.Canceled) || c.Revoked().Cause != io.EOF {
				t.Errorf("finish %t: %v, revoked %v", finish, err, c.Revoked())
			}
		}
		if !after.End() || after.End() || !outer.End() || r.Context().Err() != nil {
			t.Errorf("after the turn: over %t, %v", outer.Over(), r.Context().Err())
		}
	}
}

// A turn that has ended cannot be revoked, and is not that of another one inside.
func TestRevokedTooLate(t *testing.T) {
	r := requestOf(t.Context())
	outer := begin(r, true, nil)
	outer.End()
	inner := begin(r, true, outer)
	if outer.Revoke(io.EOF) || inner.Revoked() != nil || inner.Err() != nil {
		t.Errorf("revoked: %v", inner.Revoked())
	}
}

// A turn that has ended without a revocation has none later. Bug: one that came between two
// steps of the end still counted, and a response that was whole was answered with 504.
func TestRevokedWhileItEnds(t *testing.T) {
	r := requestOf(t.Context())
	for i := range 20_000 {
		c := begin(r, true, nil)
		revoked := make(chan bool, 1)
		var revoking sync.WaitGroup
		revoking.Go(func() { revoked <- c.Revoke(io.EOF) })
		for range i % 20 {
			runtime.Gosched()
		}
		c.End()
		before := c.Revoked() != nil
		revoking.Wait()
		if after := c.Revoked() != nil; before != after || after != <-revoked || after != c.EndedEarly() {
			t.Fatalf("turn %d: revoked %t at its end, then %t, its context ended early: %t", i, before, after, c.EndedEarly())
		}
	}
}

// When the turn has ended, nothing is interrupted any more: net/http panics if a deadline
// is set for a request that it has served. Needs the race detector.
func TestNoInterruptionAfterTheTurn(t *testing.T) {
	for range 200 {
		c, writer := begin(requestOf(t.Context()), true, nil), new(int)
		c.Interrupt(func() { *writer++ })
		c.Revoke(io.EOF)
		c.End()
		writer = nil
	}
}

// Bug: net/http takes the end of an HTTP/1 upload for that of its client, also if it was cut
// off in an inner queue. So a proxy in the error routes answered 499 to a client that was
// there, in place of 504.
func TestErrorRoutesAfterARevokedUpload(t *testing.T) {
	request, gone := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(request, "POST", "/", strings.NewReader("body"))
	outer := begin(r, true, nil)
	middle := begin(r, true, outer)
	inner := begin(r, true, middle)
	inner.Revoke(io.EOF)
	inner.CutReads(httptest.NewRecorder(), 1)
	gone()
	for i, c := range []*Context{inner, middle, outer} {
		c.End()
		if time.Sleep(time.Millisecond); r.Context().Err() != nil {
			t.Errorf("after %d turns: %v", i+1, r.Context().Err())
		}
	}
}

// After the turn, a request with a body stays as it is, with a context that ends with the request.
// Needs the race detector. Bug: Caddy's proxy reads the trailers of a request when its body ends,
// also if the upstream had answered before that, and the turn's end wrote the request meanwhile.
func TestBodyEndsAfterTheTurn(t *testing.T) {
	for _, finish := range []bool{true, false} {
		request, answered := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(request, "POST", "/", strings.NewReader("body"))
		outer := begin(r, finish, nil)
		inner := begin(r, finish, outer)
		trailers := make(chan http.Header, 1)
		go func() { trailers <- r.Trailer }()
		if inner.End(); r.Context().Err() != nil {
			t.Errorf("finish %t: in the outer turn: %v", finish, r.Context().Err())
		}
		if outer.End(); r.Context().Err() != nil {
			t.Errorf("finish %t: after the turn: %v", finish, r.Context().Err())
		}
		<-trailers
		answered()
		if <-r.Context().Done(); inner.EndedEarly() || outer.EndedEarly() {
			t.Errorf("finish %t: a client that went after the turn went too early", finish)
		}
	}
}

// What the handlers know as their context has ended with the turn, for good. Only the request
// has another one again. Bug: it was the same one, which did not end, so Done was closed and
// Err nil. Package context panics then, and a proxy did not hang up on an upstream over HTTP/2.
func TestContextStaysEnded(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		r := requestOf(t.Context())
		outer := begin(r, true, nil)
		inner := begin(r, true, outer)
		ofHandlers := r.Context()
		if revoked {
			inner.Revoke(io.EOF)
		}
		inner.End()
		outer.Revoke(io.EOF)
		outer.End()
		if <-ofHandlers.Done(); ofHandlers.Err() == nil || r.Context().Err() != nil {
			t.Errorf("revoked %t: that of the handlers: %v; of the request: %v", revoked, ofHandlers.Err(), r.Context().Err())
		}
	}
}

// Bug: after the turn of an inner queue, another one inside the same outer turn took the end of that
// for a client that had hung up.
func TestRevokedAfterAnInnerTurn(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("body"))
	outer := begin(r, true, nil)
	begin(r, true, outer).End()
	outer.Revoke(io.EOF)
	if <-r.Context().Done(); !errors.Is(context.Cause(r.Context()), io.EOF) {
		t.Errorf("it ended by %v", context.Cause(r.Context()))
	}
}
