package serialize

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// The part of a file beyond the buffer is passed to the connection as a file, so
// that the system can send it.
func TestFileIsSentByTheSystem(t *testing.T) {
	const size, buffer, first = 3 << 20, 256 << 10, 16 << 10
	path := filepath.Join(t.TempDir(), "file")
	testcaddy.WriteFile(t, path, string(newPattern().next(size)))
	s := newQueue(t, buffer)
	sent := make(chan int64, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
		_ = s.ServeHTTP(&fileWatcher{w, sent}, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			http.ServeFile(w, r, path)
			return nil
		}))
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	conn := askSlowly(t, addr, "/")
	body, err := readAtLast(t, conn)
	if err != nil || string(body) != string(newPattern().next(size)) {
		t.Errorf("got %d bytes, %v", len(body), err)
	}
	if len(sent) != 1 {
		t.Fatalf("files were sent %d times", len(sent))
	}
	if got := <-sent; got < size-buffer-first || got > size-buffer {
		t.Errorf("%d bytes were sent as a file, expected %d without the first part", got, size-buffer)
	}
}

// fileWatcher notes what is sent as a file.
type fileWatcher struct {
	http.ResponseWriter
	sent chan int64
}

func (w *fileWatcher) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(w.ResponseWriter, r)
	}
	if _, ok := limited.R.(*os.File); ok {
		w.sent <- limited.N
	}
	n, err := w.ResponseWriter.(io.ReaderFrom).ReadFrom(r)
	return n, err
}

func (w *fileWatcher) Unwrap() http.ResponseWriter { return w.ResponseWriter }
