//go:build unix

package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// echoSite starts a site whose upstream answers with the header of the request, and sets fields
// that are none of its business. PROXY stands for the proxy in site. The test's address is trusted.
func echoSite(t *testing.T, site string) *caddy {
	t.Helper()
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Request-Id"] = []string{"theirs", "theirs, too"}
		switch path.Base(r.URL.Path) {
		case "broken":
			panic(http.ErrAbortHandler)
		case "early":
			w.WriteHeader(http.StatusEarlyHints)
		case "flush":
			_ = http.NewResponseController(w).Flush()
		case "upgrade":
			conn, _, err := http.NewResponseController(w).Hijack()
			check(t, err)
			defer conn.Close()
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Request-Id: theirs\r\n\r\n"))
			return
		case "trailer":
			w.Header().Set("Trailer", "X-Request-Id")
		case "late":
			w.Header().Set(http.TrailerPrefix+"X-Request-Id", "theirs")
		case "none":
			return
		}
		_ = json.NewEncoder(w).Encode(r.Header)
	}))
	proxy := "reverse_proxy " + upstream + ` {
		header_up X-Notations "{http.request.txid}|{http.request.uuid_v7}|{http.request.traceparent}|{http.vars.trace_id}"
	}`
	return start(t, setup{
		servers: trustsUs, site: "log\n" + strings.ReplaceAll(site, "PROXY", proxy),
		env: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_PROPAGATORS": "tracecontext"},
	})
}

// echoSites are sites below paths, by the first segment.
func echoSites(t *testing.T, sites map[string]string) *caddy {
	t.Helper()
	var all strings.Builder
	for name, site := range sites {
		fmt.Fprintf(&all, "handle /%s/* {\n%s\n}\n", name, site)
	}
	return echoSite(t, all.String())
}

// echoed is what the upstream got, and what the client got.
type echoed struct {
	up, down               http.Header
	txid, uuid, own, spans string // the request's notations, and the trace ID of Caddy's span
}

func (c *caddy) echo(path string, header ...string) (e echoed) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+path, nil)
	check(c.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	answer := testcaddy.Do(http.DefaultClient, r).Want(c.t, http.StatusOK)
	decodeInto(c.t, answer.Text, &e.up)
	e.down = answer.Header
	words := strings.Split(e.up.Get("X-Notations"), "|")
	e.txid, e.uuid, e.own, e.spans = words[0], words[1], words[2], words[3]
	return e
}

const trustsUs = "trusted_proxies static 127.0.0.1/32"

// A field gets the ID in the request and in the response, once, whatever a client and the
// upstream put there. An adopted text stays. Bug: a client that named the field in Connection
// hid it from the upstream. Of two handlers in one chain, the second one keeps what the first has made.
func TestHeader(t *testing.T) {
	t.Parallel()
	txid := func(e echoed) string { return e.txid }
	uuid := func(e echoed) string { return e.uuid }
	adopted := func(echoed) string { return "abc" }
	tests := map[string]struct {
		options string
		sent    []string
		want    func(echoed) string
	}{
		"txid":      {options: "header x-request-id", want: txid},
		"kind":      {options: "header X-Request-Id uuid_v7", want: uuid},
		"last-line": {options: "header X-Request-Id uuid_v7\nheader x-request-id txid", want: txid},
		"clients":   {options: "header X-Request-Id", sent: []string{"X-Request-Id", "a", "X-Request-Id", "b"}, want: txid},
		"hidden": {
			options: "header X-Request-Id", sent: []string{"Connection", "close, x-request-ID", "Connection", "X-Request-Id"}, want: txid,
		},
		"adopted":           {"trust X-Request-Id\nheader X-Request-Id", []string{"X-Request-Id", "abc"}, adopted},
		"adopted-no-uuid":   {"trust X-Request-Id\nheader X-Request-Id uuid_v7", []string{"X-Request-Id", "abc"}, adopted},
		"adopted-elsewhere": {"trust X-Other\nheader X-Request-Id", []string{"X-Other", "abc", "X-Request-Id", "b"}, adopted},
		"not-adopted":       {"trust X-Request-Id\nheader X-Request-Id uuid_v7", []string{"X-Request-Id", "a b"}, uuid},
		"two-handlers": {
			"header X-Request-Id\n}\nunique_ids {\ntrust X-Request-Id\nheader X-Request-Id\nheader X-B uuid_v7", []string{"X-Request-Id", "a b", "X-B", "b"}, txid,
		},
	}
	sites := make(map[string]string)
	for name, test := range tests {
		sites[name] = "route {\nunique_ids {\n" + test.options + "\n}\nPROXY\n}"
	}
	c := echoSites(t, sites)
	for name, test := range tests {
		for _, way := range []string{"/", "/flush"} {
			e := c.echo("/"+name+way, test.sent...)
			want := []string{test.want(e)}
			if up, down := e.up["X-Request-Id"], e.down["X-Request-Id"]; !slices.Equal(up, want) || !slices.Equal(down, want) {
				t.Errorf("%s%s: the upstream got %q, and the client %q; expected %q", name, way, up, down, want)
			}
			if up, down := e.up.Get("X-B"), e.down.Get("X-B"); name == "two-handlers" && (up != e.uuid || down != e.uuid) {
				t.Errorf("of the second handler, the upstream got %q, and the client %q; expected %q", up, down, e.uuid)
			}
		}
	}
}

// Every final answer has the field, also one of an error route, and no interim one has it. Bug: an
// upstream's trailer brought another ID.
func TestHeaderOfEachAnswer(t *testing.T) {
	t.Parallel()
	c := echoSite(t, `unique_ids {
		header X-Request-Id
	}
	handle /empty {
		vars a b
	}
	handle {
		respond /respond hello
		error /error 418
		PROXY
	}
	handle_errors 418 {
		respond {err.id} 200
	}
	handle_errors 502 {
		rewrite * /again
		unique_ids {
			header X-Request-Id
		}
		PROXY
	}`)
	for _, path := range []string{"/respond", "/error", "/broken", "/none", "/empty", "/trailer", "/late"} {
		answer := c.get(path).Want(t, http.StatusOK)
		ids := answer.Header["X-Request-Id"]
		entry := c.awaitEntry("the access log has the request", func(e entry) bool {
			request, _ := e["request"].(map[string]any)
			return e["txid"] != nil && request["uri"] == path
		})
		if !slices.Equal(ids, []string{entry.Text("txid")}) {
			t.Errorf("%s has %q; expected %s", path, ids, entry.Text("txid"))
		}
		if late := answer.Trailer["X-Request-Id"]; len(late) > 0 && !slices.Equal(late, ids) {
			t.Errorf("%s has %q in its trailer", path, late)
		}
	}
	conn := c.dial("GET /upgrade HTTP/1.1\r\nHost: " + c.host() + "\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	upgraded, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(t, err)
	defer upgraded.Body.Close()
	if ids := upgraded.Header["X-Request-Id"]; upgraded.StatusCode != http.StatusSwitchingProtocols || len(ids) != 1 || ids[0] == "theirs" {
		t.Errorf("an upgrade was answered %d, with %q", upgraded.StatusCode, ids)
	}
	var interim []textproto.MIMEHeader
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
		interim = append(interim, header)
		return nil
	}})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/early", nil)
	check(t, err)
	answer := testcaddy.Do(http.DefaultClient, r).Want(t, http.StatusOK)
	if len(interim) != 1 || !slices.Equal(interim[0]["X-Request-Id"], []string{"theirs", "theirs, too"}) {
		t.Errorf("the interim answers have %v", interim)
	}
	if ids := answer.Header["X-Request-Id"]; len(ids) != 1 || ids[0] == "theirs" {
		t.Errorf("the final answer has %q", ids)
	}
}

// A new trace goes to the upstream alone, without the state of another one. Where Caddy's tracing
// makes the trace, the header is its own.
func TestHeaderTraceparent(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	const theirs = "00-" + trace + "-00f067aa0ba902b7-01"
	own := func(e echoed) string { return strings.ReplaceAll(e.uuid, "-", "") }
	caller := func(echoed) string { return trace }
	span := func(e echoed) string { return e.spans }
	const header = "unique_ids {\nheader traceparent traceparent\n}\n"
	const trusting = "unique_ids {\ntrust traceparent\nheader traceparent traceparent\n}\n"
	tests := map[string]struct {
		site  string
		sent  []string
		want  func(echoed) string // the trace ID
		keeps bool                // the state
	}{
		"state-alone":   {site: header + "PROXY", want: own},
		"not-adopted":   {site: header + "PROXY", sent: []string{"Traceparent", theirs}, want: own},
		"adopted":       {trusting + "PROXY", []string{"Traceparent", theirs}, caller, true},
		"invalid":       {trusting + "PROXY", []string{"Traceparent", "00-" + trace}, own, false},
		"caddys":        {site: header + "tracing\nPROXY", want: span, keeps: true},
		"continued":     {site: header + "tracing\nPROXY", sent: []string{"Traceparent", theirs}, want: caller, keeps: true},
		"caddys-before": {site: "route {\ntracing\n" + header + "PROXY\n}", want: span, keeps: true},
		"caddys-nested": {site: header + "handle {\nroute /* {\ntracing\nPROXY\n}\n}", want: span, keeps: true},
		"elsewhere":     {site: header + "tracing /elsewhere\nPROXY", want: own},
		"another-group": {site: header + "handle /another-group/ {\nPROXY\n}\nhandle {\ntracing\nPROXY\n}", want: own},
	}
	sites := make(map[string]string)
	for name, test := range tests {
		sites[name] = test.site
	}
	c := echoSites(t, sites)
	for name, test := range tests {
		e := c.echo("/"+name+"/", append(test.sent, "Tracestate", "a=b")...)
		up := e.up["Traceparent"]
		if len(up) != 1 || !strings.HasPrefix(up[0], "00-"+test.want(e)+"-") || up[0] != e.own || up[0] == theirs {
			t.Errorf("%s: the upstream got %q; expected the trace ID %q, of %q", name, up, test.want(e), e.own)
		}
		if kept := e.up.Get("Tracestate") != ""; kept != test.keeps {
			t.Errorf("%s: the state is kept: %t; expected %t", name, kept, test.keeps)
		}
		if down := e.down["Traceparent"]; down != nil {
			t.Errorf("%s: the client got %q", name, down)
		}
	}
}

// The trace ID of Caddy's span is known for the response.
func TestHeaderTraceID(t *testing.T) {
	t.Parallel()
	const ids = "unique_ids {\nheader X-Trace-Id trace_id\n}\n"
	c := echoSites(t, map[string]string{"own": ids + "PROXY", "caddys": ids + "tracing\nPROXY"})
	e := c.echo("/own/", "X-Trace-Id", "a")
	if want, up, down := strings.ReplaceAll(e.uuid, "-", ""), e.up.Get("X-Trace-Id"), e.down.Get("X-Trace-Id"); up != want || down != want {
		t.Errorf("the upstream got %q, and the client %q; expected %q", up, down, want)
	}
	e = c.echo("/caddys/", "X-Trace-Id", "a")
	if up, down := e.up.Get("X-Trace-Id"), e.down.Get("X-Trace-Id"); up != "" || down != e.spans {
		t.Errorf("with tracing, the upstream got %q, and the client %q; expected %q for the client", up, down, e.spans)
	}
}
