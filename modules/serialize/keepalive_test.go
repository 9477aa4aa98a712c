package serialize

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// countsWrites is a response writer that calls a function after each write, with their number.
type countsWrites struct {
	*httptest.ResponseRecorder
	writes int
	then   func(writes int)
}

func (w *countsWrites) Write(p []byte) (int, error) {
	w.writes++
	defer w.then(w.writes)
	return w.ResponseRecorder.Write(p)
}

// commenting is a handler with keepalive and a queue that somebody is in.
func commenting(t *testing.T, queue, options string) (*Handler, serializer.Turn) {
	t.Helper()
	s := &Handler{Prefix: queue, EngineRaw: []byte(`{"engine": "memory"}`)}
	must(t, errors.Join(json.Unmarshal([]byte(`{"keepalive": {"interval": "1s"}`+options+`}`), s), provision(t, s)))
	holder := entered(t, s.engine, queue)
	t.Cleanup(holder.Leave)
	return s, holder
}

// answering is a next handler that answers as a proxy does, which panics if it cannot write. header is
// names and values in turn.
func answering(status int, body string, header ...string) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Upstream", "seen")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(status)
		for range 2 {
			if _, err := io.WriteString(w, body); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		return nil
	}
}

// After a comment, an event stream follows as it is. All else becomes one event, and one entry in the
// log with the status that the client did not get. Error routes are not asked. Bug: the event had that
// status, and not 503.
func TestWhatFollowsComments(t *testing.T) {
	const events, kind, stream = "data: x\n\n", "Content-Type", "text/event-stream"
	inner, _ := commenting(t, "follows_inner_", "")
	returning := func(err error) caddyhttp.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) error { return err }
	}
	for name, test := range map[string]struct {
		options string
		then    func(*testing.T, *Handler) // after the first comment, while it waits; nil: it enters
		next    caddyhttp.HandlerFunc      // of one that enters
		code    string                     // in the event; "": the stream follows
		status  int                        // in the log; 0: nothing is
		logs    string                     // the error there has this text
		retry   string                     // default 3000
	}{
		"stream":  {next: answering(201, events, kind, "Text/Event-Stream; charset=utf-8")},
		"none":    {next: answering(200, events, kind, stream, "Content-Encoding", "none")}, // bug: it became an event
		"500":     {next: answering(500, "", kind, stream, "Retry-After", "7"), code: "500", status: 500, retry: "7000"},
		"json":    {next: answering(200, "{}", kind, "application/json"), code: "200", status: 200},
		"encoded": {next: answering(200, events, kind, stream, "Content-Encoding", "gzip"), code: "200", status: 200},
		"nothing": {next: returning(nil), code: "200", status: 200},
		"error":   {next: returning(caddyhttp.Error(404, errors.New("boom"))), code: "404", status: 404, logs: "boom"},
		"panic":   {next: func(http.ResponseWriter, *http.Request) error { panic("boom") }, code: "502", status: 502, logs: "boom"},
		"timeout": {options: `, "timeout": "4s"`, then: func(*testing.T, *Handler) {}, code: "timeout", status: 503, retry: `\d+`},
		"evicted": {then: evictLast, code: "evicted", status: 503, retry: `\d+`},
		"gone":    {then: func(*testing.T, *Handler) {}, code: "499"}, // bug: the log had an error for each such client
		"inner": {next: func(w http.ResponseWriter, r *http.Request) error { // a queue, in which comments go on
			return inner.ServeHTTP(w, r, returning(nil))
		}, code: "evicted", status: 503, retry: `\d+`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, holder := commenting(t, "follows_"+name, test.options)
			core, log := observer.New(zap.ErrorLevel)
			s.report.Logger = zap.New(core)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			w := &countsWrites{ResponseRecorder: httptest.NewRecorder(), then: func(writes int) {
				switch {
				case name == "gone":
					leave()
				case writes == 1 && test.then != nil:
					test.then(t, s)
				case writes == 1:
					holder.Leave()
				case writes == 2 && name == "inner":
					evictLast(t, inner)
				}
			}}
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
			r.Header = http.Header{"Accept": {stream}, "Accept-Encoding": {"gzip"}, "Upgrade": {"h2c"}}
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
			if err := s.ServeHTTP(w, r, test.next); err != nil {
				t.Errorf("the error routes get %v", err)
			}
			head := http.Header{kind: {stream}, "Cache-Control": {"no-store, no-transform"}, "X-Accel-Buffering": {"no"}}
			if w.Code != http.StatusOK || fmt.Sprint(w.Header()) != fmt.Sprint(head) || len(r.Header) != 1 {
				t.Errorf("the client gets %d, %v, and the upstream %v", w.Code, w.Header(), r.Header)
			}
			follows := fmt.Sprintf(`event: error\nretry: %s\ndata: {"error":{"message":"[^"]+","type":"overloaded_error","code":"%s","status":503},"type":"error"}\n\n`,
				cmp.Or(test.retry, "3000"), test.code)
			if test.code == "" {
				follows = events + events
			}
			if !regexp.MustCompile("^(: waiting, place 1\n\n)+" + follows + "$").MatchString(w.Body.String()) {
				t.Errorf("the client gets %q", w.Body)
			}
			entries := log.FilterMessageSnippet("failed after the head of an event stream").All()
			if test.status == 0 && log.Len() == 0 {
				return
			}
			if fields := entries[0].ContextMap(); len(entries) != 1 || fields["status"] != int64(test.status) || fields["queue"] != s.Prefix ||
				!strings.Contains(fields["error"].(string), test.logs) {
				t.Errorf("the log has %v", entries)
			}
		})
	}
}

// Those who ask for a stream get comments, with always scripts and programs, too. Others get the answer of
// their turn, or of the refusal, with its own status.
func TestWhoGetsComments(t *testing.T) {
	page := new(waitingpage.Page)
	for _, test := range []struct {
		method       string
		major, minor int
		accept, mode string
		always       bool
		page         *waitingpage.Page
		streams      bool
	}{
		{"GET", 1, 1, "text/html, Text/Event-Stream;q=0.9", "", false, nil, true},
		{"HEAD", 1, 1, "text/event-stream", "", true, nil, false},
		{"GET", 1, 0, "text/event-stream", "", true, nil, false},
		{"GET", 1, 1, "application/json, */*, text/event-streams", "", false, nil, false},
		{"POST", 1, 1, "application/json", "", true, nil, true},
		{"GET", 2, 0, "text/html", "cors", true, nil, true},
		{"POST", 2, 0, "*/*", "navigate", true, nil, false},
		{"POST", 1, 1, "text/html,*/*;q=0.8", "", true, nil, false}, // a navigation over plain HTTP
		{"GET", 2, 0, "text/event-stream", "cors", true, page, true},
		{"GET", 1, 1, "text/html, text/event-stream", "", true, page, false},
	} {
		s := &Handler{KeepAlive: &KeepAlive{Always: test.always}, line: &waitingpage.Line{Page: test.page}}
		for upgrade, may := range map[string]bool{"": true, "h2c": true, "websocket": false} { // bug: who offered HTTP/2 got no comments
			r := httptest.NewRequest(test.method, "/", http.NoBody)
			r.ProtoMajor, r.ProtoMinor = test.major, test.minor
			r.Header = http.Header{"Accept": {test.accept}, "Sec-Fetch-Mode": {test.mode}, "Upgrade": {upgrade}}
			if streams := s.streams(r); streams != (may && test.streams) {
				t.Errorf("%+v with Upgrade %s: %t", test, upgrade, streams)
			}
		}
	}
}
