//go:build linux

package server

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"
)

func TestGaps(t *testing.T) {
	if got := Gaps([]Visit{{7000, 9000}, {0, 5000}, {10_000, 20_000}}); !slices.Equal(got, []time.Duration{1000, 2000}) {
		t.Errorf("got %v", got)
	}
	if got := Gaps([]Visit{{0, 5000}, {4000, 10_000}}); got[0] >= 0 {
		t.Errorf("two were inside at once, and the gap is %v", got[0])
	}
}

func TestBackend(t *testing.T) {
	b, err := StartBackend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const hold = 2 * time.Millisecond
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+b.Addr+b.Path(hold), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	visits, err := b.Visits()
	if err != nil || len(visits) != 1 || visits[0].End-visits[0].Begin < hold.Nanoseconds() {
		t.Errorf("after a request that takes %v: %v, %v", hold, visits, err)
	}
	if visits, _ := b.Visits(); len(visits) > 0 {
		t.Errorf("visits came twice: %v", visits)
	}
}
