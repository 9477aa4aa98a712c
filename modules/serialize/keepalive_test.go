package serialize

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
)

// firstWrite is a response writer that calls a function once something is written.
type firstWrite struct {
	*httptest.ResponseRecorder
	then func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.then()
	return w.ResponseRecorder.Write(p)
}

func (w *firstWrite) Unwrap() http.ResponseWriter { return w.ResponseRecorder }

// What the next handlers do after a comment is one event and one entry in the log, also if they
// panic.
func TestHandlersFailAfterAComment(t *testing.T) {
	for name, next := range map[string]caddyhttp.HandlerFunc{
		"panic":   func(http.ResponseWriter, *http.Request) error { panic("boom") },
		"error":   func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(404, errors.New("boom")) },
		"nothing": func(http.ResponseWriter, *http.Request) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Handler{Prefix: "fails_" + name, EngineRaw: []byte(`{"engine": "memory"}`)}
			must(t, errors.Join(json.Unmarshal([]byte(`{"keepalive": {"interval": "1s"}}`), s), provision(t, s)))
			core, log := observer.New(zap.DebugLevel)
			s.report.Logger = zap.New(core)
			holder := entered(t, s.engine, s.prefix.Names)
			w := &firstWrite{httptest.NewRecorder(), holder.Leave}
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.Header.Set("Accept", "text/event-stream")
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
			if err := s.ServeHTTP(w, r, next); err != nil {
				t.Errorf("the error routes get %v", err)
			}
			body := w.Body.String()
			if !strings.HasPrefix(body, ": waiting, place 1\n\nevent: error\nretry: 3000\ndata: {") || strings.Count(body, "event:") != 1 || !strings.HasSuffix(body, "}\n\n") {
				t.Errorf("the client gets %q", body)
			}
			entries := log.FilterMessageSnippet("failed after the head of an event stream").All()
			if len(entries) != 1 || name != "nothing" && !strings.Contains(entries[0].ContextMap()["error"].(string), "boom") {
				t.Errorf("the log has %v", entries)
			}
		})
	}
}

// Those who ask for a stream get comments, with always scripts and programs, too. Others get the answer of
// their turn, or of the refusal, with its own status.
func TestWhoGetsComments(t *testing.T) {
	for _, test := range []struct {
		method, proto, accept, mode string
		always, page                bool
		streams                     bool
	}{
		{"GET", "HTTP/1.1", "text/html, Text/Event-Stream;q=0.9", "", false, false, true},
		{"HEAD", "HTTP/1.1", "text/event-stream", "", true, false, false},
		{"GET", "HTTP/1.0", "text/event-stream", "", true, false, false},
		{"GET", "HTTP/1.1", "application/json, */*, text/event-streams", "", false, false, false},
		{"POST", "HTTP/1.1", "application/json", "", true, false, true},
		{"GET", "HTTP/2.0", "text/html", "cors", true, false, true},
		{"POST", "HTTP/2.0", "*/*", "navigate", true, false, false},
		{"POST", "HTTP/1.1", "text/html,*/*;q=0.8", "", true, false, false}, // a navigation over plain HTTP
		{"GET", "HTTP/2.0", "text/event-stream", "cors", true, true, true},
		{"GET", "HTTP/1.1", "text/html", "", true, true, false},
	} {
		s := &Handler{KeepAlive: &KeepAlive{Always: test.always}, line: new(waitingpage.Line)}
		if test.page {
			s.line.Page = new(waitingpage.Page)
		}
		r := httptest.NewRequest(test.method, "/", http.NoBody)
		r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(test.proto)
		r.Header.Set("Accept", test.accept)
		if test.mode != "" {
			r.Header.Set("Sec-Fetch-Mode", test.mode)
		}
		if streams := s.streams(r); streams != test.streams {
			t.Errorf("%+v: %t", test, streams)
		}
		for upgrade, may := range map[string]bool{"h2c": true, "websocket": false} { // bug: who offered HTTP/2 got no comments
			r.Header.Set("Upgrade", upgrade)
			if streams := s.streams(r); streams != (may && test.streams) {
				t.Errorf("%+v with Upgrade %s: %t", test, upgrade, streams)
			}
		}
	}
}
