package uniqueids

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// However a handler begins its answer, the field is there.
func TestResponseBegins(t *testing.T) {
	u := &Handler{Headers: []Header{{Field: "x-request-id"}}, byPlaceholder: make(map[string]newID)}
	if err := u.Headers[0].provision(); err != nil {
		t.Fatal(err)
	}
	u.byPlaceholder["http.request.txid"], _ = kinds[0].open(context.Background(), u)
	for name, begin := range map[string]func(*response){
		"status": func(w *response) { w.WriteHeader(http.StatusAccepted) },
		"write":  func(w *response) { _, _ = w.Write([]byte("hello")) },
		"copy":   func(w *response) { _, _ = io.Copy(w, io.LimitReader(strings.NewReader("hello"), 5)) },
		"flush":  func(w *response) { w.Flush() },
		"flush by controller": func(w *response) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		},
		"hijack": func(w *response) {
			w.setFields()
			conn, _, err := w.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\nX-Request-Id: "+w.Header().Get("X-Request-Id")+"\r\n\r\n")
			_ = conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ids := &requestIDs{handler: u}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer := &response{handler: u, ids: ids}
				answer.ResponseWriter = w
				begin(answer)
			}))
			defer server.Close()
			answer, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if got := answer.Header.Get("X-Request-Id"); got == "" || got != ids.TXID() {
				t.Errorf("the field is %q; expected %q", got, ids.TXID())
			}
		})
	}
}

// A field or a kind that there is not is refused in JSON, too.
func TestHeaderErrors(t *testing.T) {
	for _, h := range []Header{{}, {Field: "a b"}, {Field: "Host"}, {Field: "X-A", Kind: "TXID"}, {Field: "tracestate", Kind: "trace_id"}} {
		if err := h.provision(); err == nil || !strings.HasPrefix(err.Error(), "header ") || !strings.Contains(err.Error(), "expected ") {
			t.Errorf("%+v: %v", h, err)
		}
	}
}
