package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// Bug: the lease of a process that had left stayed on a server that was silent for more than
// two ttl, and the process itself waited for its end: another ttl.
func TestLongSilence(t *testing.T) {
	for _, silence := range testlease.Silences(shortTTL) {
		t.Run(fmt.Sprint(silence), func(t *testing.T) {
			t.Parallel()
			s := testpostgres.Start(t)
			open := func() *testlease.Engine { return open(t, Options{URL: s.URL(), TTL: silence.TTL}) }
			silence.Run(t, open, s.Freeze, s.Thaw, 2*time.Second)
		})
	}
}
