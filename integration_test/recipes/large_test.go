package recipes

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// bigResponse is an upstream that answers with more than a network buffers.
func bigResponse(t *testing.T) (addr string) {
	t.Helper()
	body := bytes.Repeat([]byte("large "), 7<<20/6) // 7 MiB
	return testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			_, _ = w.Write(body)
			return
		}
		_, _ = w.Write(body[:6])
	}))
}
