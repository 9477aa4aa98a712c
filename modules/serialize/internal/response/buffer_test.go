package response

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The memory of a client that reads nothing is bounded, however its response is
// written.
func TestMemoryOfASlowReader(t *testing.T) {
	for _, size := range []int{1, 1000, 256 << 10, 1 << 20} {
		buffers := make(chan *buffer, 1)
		var written atomic.Int64
		conn := askSlowly(t, serve(t, size, func(w http.ResponseWriter, _ *http.Request) error {
			buffers <- &w.(*Writer).buffer
			write := func(size int) bool {
				n, err := w.Write(make([]byte, size))
				written.Add(int64(n))
				return err == nil
			}
			for i := 1; write(i % 50_000); i++ {
				if i%3 == 0 {
					_ = http.NewResponseController(w).Flush()
				}
			}
			return nil
		}))
		b := <-buffers
		wait.Eventually(t, "the handler waits for the client", func() error {
			before := written.Load()
			time.Sleep(200 * time.Millisecond)
			if written.Load() != max(before, 1) {
				return errors.New("not yet")
			}
			return nil
		})
		b.mu.Lock()
		kept := 1 // that is being written
		for p := b.first; p != nil; p = p.next {
			kept++
		}
		b.mu.Unlock()
		if most := size/pieceSize + 2; kept > most {
			t.Errorf("a buffer of %d: %d pieces are kept, expected at most %d", size, kept, most)
		}
		_ = conn.Close()
	}
}

// serve serves handlers whose response goes through a writer, and ends with the client.
func serve(t *testing.T, size int, next caddyhttp.HandlerFunc) (addr string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		w := new(Writer)
		w.Init(to, r, Settings{Turn: r.Context(), EndsWithClient: true, BufferSize: size, Logger: zap.NewNop()})
		err := w.Serve(r.Context(), r, next)
		_, _ = w.Conclude(r, err, nil)
		w.Deliver()
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return strings.TrimPrefix(server.URL, "http://")
}

// askSlowly makes a request, and reads nothing.
func askSlowly(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}
