package main

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/server"
)

// The servers of the comparisons start and serve.
func TestContest(t *testing.T) {
	backend, err := server.StartBackend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{home: t.TempDir(), set: new(figures.Set)}
	if b.caddy, err = buildCaddy(t.Context(), "..", b.home); err != nil {
		t.Fatal(err)
	}
	c := contest{bench: b, path: backend.Path, contestants: proxies(b.caddy, backend.Addr), seconds: 1}
	if err := c.compare(t.Context(), 1, each([]int{8}, 0)); err != nil {
		t.Fatal(err)
	}
	for _, row := range b.set.Rows {
		for _, figure := range []string{rate, wait, late, work} {
			if len(row.Values[figure]) != 1 || row.Values[figure][0] <= 0 {
				t.Errorf("%s: %s: %v", row.Who, figure, row.Values[figure])
			}
		}
	}
	if len(b.set.Rows) != len(c.contestants) {
		t.Errorf("%d of %d contestants were measured", len(b.set.Rows), len(c.contestants))
	}
}
