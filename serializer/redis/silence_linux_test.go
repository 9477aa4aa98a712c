package redis

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testsilence"
)

// Bug: the lease of a process that had left stayed on a server that was silent for more than
// two ttl, and the process itself waited for its end: another ttl.
func TestLongSilence(t *testing.T) {
	for _, c := range testsilence.Cases(ttl) {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			open := func() *serializer.Engine { return open(t, Options{TTL: c.TTL}, s.address) }
			c.Run(t, open, func() { s.signal(syscall.SIGSTOP) }, func() { s.signal(syscall.SIGCONT) }, 2*time.Second)
		})
	}
}
