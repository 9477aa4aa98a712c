package turn

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"sync"
	"testing"
)

// begin puts a request inside that comes with a context.
func begin(ctx context.Context, finish bool, around *Context) *Context {
	c, r := new(Context), httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	c.Init(r, finish, around)
	c.Begin(r)
	return c
}

// A revocation reaches the turns inside, whether they begin before it or after it. Bug: an
// outer queue's hold_timeout had no effect behind an inner one.
func TestNestedRevocation(t *testing.T) {
	for _, finish := range []bool{true, false} {
		outer := begin(t.Context(), true, nil)
		before := begin(context.WithValue(outer, new(int), 1), finish, outer)
		if !outer.Revoke(io.EOF) || outer.Revoke(io.ErrNoProgress) {
			t.Error("not the first revocation counts")
		}
		after := begin(outer, finish, outer)
		for _, c := range []*Context{outer, before, after} {
			if cause := context.Cause(c); !errors.Is(cause, io.EOF) || !errors.Is(cause, context.Canceled) || c.Revoked().Cause != io.EOF {
				t.Errorf("finish %t: %v, revoked %v", finish, cause, c.Revoked())
			}
		}
		if !after.End() || after.End() || !outer.End() || outer.Err() != nil {
			t.Errorf("after the turn: over %t, %v", outer.Over(), outer.Err())
		}
	}
}

// A turn that has ended cannot be revoked, and is not that of another one inside.
func TestRevokedTooLate(t *testing.T) {
	outer := begin(t.Context(), true, nil)
	outer.End()
	inner := begin(outer, true, outer)
	if outer.Revoke(io.EOF) || inner.Revoked() != nil || inner.Err() != nil {
		t.Errorf("revoked: %v", inner.Revoked())
	}
}

// When the turn has ended, nothing is interrupted any more: net/http panics if a deadline
// is set for a request that it has served. Needs the race detector.
func TestNoInterruptionAfterTheTurn(t *testing.T) {
	for range 200 {
		c, writer := begin(t.Context(), true, nil), new(int)
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
	outer := begin(request, true, nil)
	inner := begin(outer, true, outer)
	inner.Revoke(io.EOF)
	inner.CutReads(httptest.NewRecorder(), 1)
	gone()
	if inner.End(); outer.Err() != nil {
		t.Errorf("in the outer turn: %v", outer.Err())
	}
	if outer.End(); outer.Err() != nil {
		t.Errorf("in the error routes: %v", outer.Err())
	}
}

// A goroutine that outlives the handlers may derive a context at any moment. Bug: it found
// Done closed and Err nil when the turn just ended, for which package context panics.
func TestDerivedWhileTheTurnEnds(t *testing.T) {
	for i := range 20_000 {
		request, answered := context.WithCancel(t.Context())
		c := begin(request, i%2 == 0, nil)
		var outliving sync.WaitGroup
		outliving.Go(func() {
			for !c.Over() {
				_, cancel := context.WithCancel(c)
				cancel()
			}
			<-c.Done()
		})
		c.End()
		if err := c.Err(); err != nil {
			t.Fatalf("in the error routes: %v", err)
		}
		answered()
		outliving.Wait()
	}
}
