//go:build unix

package integration_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

const trustsUs = "trusted_proxies static 127.0.0.1/32"

// headerSites starts sites below paths, with a proxy where they have PROXY. Its upstream sets a
// field that is none of its business, and learns the request's IDs. The test's address is trusted.
func headerSites(t *testing.T, sites map[string]string) *caddy {
	t.Helper()
	const proxy = `reverse_proxy {$UPSTREAM} {
		header_down X-Request-Id theirs
		header_up X-Txid {http.request.txid}
		header_up X-Uuid {http.request.uuid_v7}
		header_up X-Parent {http.request.traceparent}
		header_up X-Span {http.vars.trace_id}
	}`
	var all strings.Builder
	for name, site := range sites {
		fmt.Fprintf(&all, "handle /%s/* {\n%s\n}\n", name, strings.ReplaceAll(site, "PROXY", proxy))
	}
	return start(t, setup{
		servers: trustsUs, site: all.String(),
		env: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_PROPAGATORS": "tracecontext"},
	})
}

// headers are what the upstream and the client of a site get. header is names and values in turn.
func (c *caddy) headers(site string, header ...string) (up, down http.Header) {
	c.t.Helper()
	down = c.get("/"+site+"/", header...).Want(c.t, http.StatusOK).Header
	return c.Hit(site + "/").Header, down
}

// A field gets the ID in the request and in the response, once, whatever a client and the
// upstream put there. An adopted text stays. Bug: a client that named the field in Connection
// hid it from the upstream. Of two handlers in one chain, the second one keeps what the first has made.
func TestHeader(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options string
		header  []string
		want    string // the text, or the upstream's field that has it
	}{
		"txid":              {"header x-request-id", nil, "X-Txid"},
		"kind":              {"header X-Request-Id uuid_v7", nil, "X-Uuid"},
		"client":            {"header X-Request-Id", []string{"X-Request-Id", "a"}, "X-Txid"},
		"hidden":            {"header X-Request-Id", []string{"Connection", "close, x-request-ID"}, "X-Txid"},
		"adopted":           {"trust X-Request-Id\nheader X-Request-Id", []string{"X-Request-Id", "abc"}, "abc"},
		"adopted-no-uuid":   {"trust X-Request-Id\nheader X-Request-Id uuid_v7", []string{"X-Request-Id", "abc"}, "abc"},
		"adopted-elsewhere": {"trust X-Other\nheader X-Request-Id", []string{"X-Other", "abc", "X-Request-Id", "b"}, "abc"},
		"not-adopted":       {"trust X-Request-Id\nheader X-Request-Id uuid_v7", []string{"X-Request-Id", "a b"}, "X-Uuid"},
		"two-handlers": {
			"header X-Request-Id\n}\nunique_ids {\ntrust X-Request-Id\nheader X-Request-Id", []string{"X-Request-Id", "a b"}, "X-Txid",
		},
		"second-handler": {"header X-A\n}\nunique_ids {\nheader X-Request-Id uuid_v7", []string{"X-Request-Id", "a"}, "X-Uuid"},
	}
	sites := make(map[string]string)
	for name, test := range tests {
		sites[name] = "unique_ids {\n" + test.options + "\n}\nPROXY"
	}
	c := headerSites(t, sites)
	for name, test := range tests {
		up, down := c.headers(name, test.header...)
		want := []string{cmp.Or(up.Get(test.want), test.want)}
		if up, down := up["X-Request-Id"], down["X-Request-Id"]; !slices.Equal(up, want) || !slices.Equal(down, want) {
			t.Errorf("%s: the upstream got %q, and the client %q; expected %q", name, up, down, want)
		}
	}
}

// A new trace goes to the upstream alone, without the state of another one. Where Caddy's tracing
// makes the trace, the header is its own, and the ID of the trace is known only for the response.
func TestHeaderTraceparent(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	const theirs = "00-" + trace + "-00f067aa0ba902b7-01"
	const headers = "header traceparent traceparent\nheader X-Trace-Id trace_id\n}\n"
	const ids, trusting = "unique_ids {\n" + headers, "unique_ids {\ntrust traceparent\n" + headers
	tests := map[string]struct {
		site  string
		sent  string
		trace string // that the upstream gets: "X-Span" is Caddy's, and "" the request's own
		keeps bool   // the state
	}{
		"state-alone":   {site: ids + "PROXY"},
		"not-adopted":   {site: ids + "PROXY", sent: theirs},
		"adopted":       {trusting + "PROXY", theirs, trace, true},
		"caddys":        {ids + "tracing\nPROXY", "", "X-Span", true},
		"continued":     {ids + "tracing\nPROXY", theirs, trace, true},
		"caddys-before": {"route {\ntracing\n" + ids + "PROXY\n}", "", "X-Span", true},
		"caddys-nested": {ids + "handle {\nroute /* {\ntracing\nPROXY\n}\n}", "", "X-Span", true},
		"elsewhere":     {site: ids + "tracing /elsewhere\nPROXY", sent: theirs},
		"another-group": {site: ids + "handle /another-group/ {\nPROXY\n}\nhandle {\ntracing\nPROXY\n}", sent: theirs},
	}
	sites := make(map[string]string)
	for name, test := range tests {
		sites[name] = test.site
	}
	c := headerSites(t, sites)
	for name, test := range tests {
		up, down := c.headers(name, "Tracestate", "a=b", "X-Trace-Id", "a", "Traceparent", test.sent)
		want := cmp.Or(up.Get(test.trace), test.trace, strings.ReplaceAll(up.Get("X-Uuid"), "-", ""))
		if parent := up["Traceparent"]; len(parent) != 1 || !strings.HasPrefix(parent[0], "00-"+want+"-") || parent[0] != up.Get("X-Parent") {
			t.Errorf("%s: the upstream got %q; expected the trace ID %q, of %q", name, parent, want, up.Get("X-Parent"))
		}
		if kept := up.Get("Tracestate") != ""; kept != test.keeps {
			t.Errorf("%s: the state is kept: %t; expected %t", name, kept, test.keeps)
		}
		later := strings.Contains(test.site, "tracing\nPROXY") // so the upstream gets no ID of the trace
		if id := up.Get("X-Trace-Id"); id != want && (id != "" || !later) || down.Get("X-Trace-Id") != want || down["Traceparent"] != nil {
			t.Errorf("%s: the upstream got the ID %q, and the client %v; expected %q", name, id, down, want)
		}
	}
}

// Every final answer has the field, also one of an error route, and no interim one has it. Bug: an
// upstream's trailer brought another ID.
func TestHeaderOfEachAnswer(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Request-Id"] = []string{"theirs", "theirs, too"}
		switch r.URL.Path {
		case "/broken":
			panic(http.ErrAbortHandler)
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
		case "/upgrade":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
			return
		case "/trailer":
			w.Header().Set("Trailer", "X-Request-Id")
		case "/late":
			w.Header().Set(http.TrailerPrefix+"X-Request-Id", "theirs")
		case "/none":
			return
		}
		_, _ = io.WriteString(w, "answer")
		_ = http.NewResponseController(w).Flush()
	}))
	c := start(t, setup{env: map[string]string{"UPSTREAM": upstream}, site: `log
	unique_ids {
		header X-Request-Id
	}
	handle /empty {
		vars a b
	}
	handle {
		respond /respond hello
		error /error 418
		reverse_proxy {$UPSTREAM}
	}
	handle_errors 418 {
		respond {err.id} 200
	}
	handle_errors 502 {
		rewrite * /again
		unique_ids {
			header X-Request-Id
		}
		reverse_proxy {$UPSTREAM}
	}`})
	for _, path := range []string{"/respond", "/error", "/broken", "/none", "/empty", "/trailer", "/late", "/early", "/upgrade"} {
		conn := c.dial("GET " + path + " HTTP/1.1\r\nHost: " + c.host() + "\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		reader := bufio.NewReader(conn)
		answer, err := http.ReadResponse(reader, nil)
		check(t, err)
		if path == "/early" {
			if ids := answer.Header["X-Request-Id"]; answer.StatusCode != http.StatusEarlyHints || !slices.Equal(ids, []string{"theirs", "theirs, too"}) {
				t.Errorf("the interim answer is %d, with %q", answer.StatusCode, ids)
			}
			answer, err = http.ReadResponse(reader, nil)
			check(t, err)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		check(t, errors.Join(err, conn.Close()))
		ids := answer.Header["X-Request-Id"]
		entry := c.awaitEntry("the access log has the request", func(e entry) bool {
			request, _ := e["request"].(map[string]any)
			return e["txid"] != nil && request["uri"] == path
		})
		if !slices.Equal(ids, []string{entry.Text("txid")}) {
			t.Errorf("%s is answered %d with %q; expected %s", path, answer.StatusCode, ids, entry.Text("txid"))
		}
		if late := answer.Trailer["X-Request-Id"]; len(late) > 0 && !slices.Equal(late, ids) {
			t.Errorf("%s has %q in its trailer", path, late)
		}
	}
}
