package testprocess

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// Systems give none of these ports to outgoing connections.
const (
	firstPort = 10_000
	allPorts  = 20_000
	rangeSize = 100
)

// portRanges are those of one process. It listens at the first port of each until it ends, so
// that no other process takes the range. The ports of one before it may still be in use.
type portRanges struct {
	mu     sync.Mutex
	tried  int
	locked []net.Listener
}

var ours = portRanges{tried: os.Getpid() * rangeSize}

// FreeAddr returns an address of this machine that is for one server until the end of the tests.
// Nothing listens there at the moment, and other tests' processes do not get it.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr := ours.next()
	if addr == "" {
		t.Fatal("no port is free")
	}
	return addr
}

// next returns an address at which nothing listens, or an empty one if there is none.
func (r *portRanges) next() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range allPorts {
		index := r.tried % allPorts
		r.tried++
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+index)
		l, err := net.Listen("tcp", addr)
		switch isFirst := index%rangeSize == 0; {
		case isFirst && err == nil:
			r.locked = append(r.locked, l)
		case isFirst:
			r.tried += rangeSize - 1
		case err == nil:
			_ = l.Close()
			return addr
		}
	}
	return ""
}
