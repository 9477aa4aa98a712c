package lease

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Those who wait get the session, or the failure; later ones get it at once.
func TestCurrent(t *testing.T) {
	var c Current[int]
	session, failure, other := new(1), errors.New("refused"), errors.New("other")
	for _, set := range []struct {
		session *int
		failure error
	}{{session, nil}, {nil, failure}, {nil, other}} {
		c.Set(nil, nil) // a lease is being requested
		over, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("over"))
		if s, err := c.Await(over); s != nil || err == nil || err.Error() != "over" {
			t.Errorf("without a session: %v, %v", s, err)
		}
		cancel()
		got := make(chan *int)
		go func() {
			s, err := c.Await(t.Context())
			if !errors.Is(err, set.failure) {
				t.Errorf("got error %v; expected %v", err, set.failure)
			}
			got <- s
		}()
		c.Set(set.session, set.failure)
		if s := <-got; s != set.session || c.Get() != set.session {
			t.Errorf("got %v; expected %v", s, set.session)
		}
	}
	if c.Set(nil, other) || !c.Set(nil, failure) {
		t.Error("a new failure is not recognized")
	}
}
