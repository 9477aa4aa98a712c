//go:build unix

package integration_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// echoSite starts a site whose upstream answers with the header of the request, and sets fields
// that are none of its business. PROXY stands for the proxy in site.
func echoSite(t *testing.T, servers, site string) *caddy {
	t.Helper()
	upstream := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Request-Id"] = []string{"theirs", "theirs, too"}
		switch r.URL.Path {
		case "/broken":
			panic(http.ErrAbortHandler)
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
		case "/flush":
			_ = http.NewResponseController(w).Flush()
		case "/upgrade":
			conn, _, err := http.NewResponseController(w).Hijack()
			check(t, err)
			defer conn.Close()
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Request-Id: theirs\r\n\r\n"))
			return
		case "/trailer":
			w.Header().Set("Trailer", "X-Request-Id")
		case "/late":
			w.Header().Set(http.TrailerPrefix+"X-Request-Id", "theirs")
		case "/none":
			return
		}
		_ = json.NewEncoder(w).Encode(r.Header)
	}))
	proxy := "reverse_proxy " + upstream + ` {
		header_up X-Notations "{http.request.txid}|{http.request.uuid_v7}|{http.request.traceparent}|{http.vars.trace_id}"
	}`
	return start(t, setup{
		servers: servers, site: "log\n" + strings.ReplaceAll(site, "PROXY", proxy),
		env: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_PROPAGATORS": "tracecontext"},
	})
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
// hid it from the upstream.
func TestHeader(t *testing.T) {
	t.Parallel()
	txid := func(e echoed) string { return e.txid }
	uuid := func(e echoed) string { return e.uuid }
	adopted := func(echoed) string { return "abc" }
	for name, test := range map[string]struct {
		servers, options string
		sent             []string
		want             func(echoed) string
	}{
		"txid":          {options: "header x-request-id", want: txid},
		"another kind":  {options: "header X-Request-Id uuid_v7", want: uuid},
		"the last line": {options: "header X-Request-Id uuid_v7\nheader x-request-id txid", want: txid},
		"a client's":    {options: "header X-Request-Id", sent: []string{"X-Request-Id", "a", "X-Request-Id", "b"}, want: txid},
		"hidden by a client": {
			options: "header X-Request-Id", sent: []string{"Connection", "close, x-request-ID", "Connection", "X-Request-Id"}, want: txid,
		},
		"adopted":             {trustsUs, "trust X-Request-Id\nheader X-Request-Id", []string{"X-Request-Id", "abc"}, adopted},
		"adopted, not a UUID": {trustsUs, "trust X-Request-Id\nheader X-Request-Id uuid_v7", []string{"X-Request-Id", "abc"}, adopted},
		"adopted elsewhere":   {trustsUs, "trust X-Other\nheader X-Request-Id", []string{"X-Other", "abc", "X-Request-Id", "b"}, adopted},
		"not adopted":         {"", "trust X-Request-Id\nheader X-Request-Id uuid_v7", []string{"X-Request-Id", "abc"}, uuid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := echoSite(t, test.servers, "unique_ids {\n"+test.options+"\n}\nPROXY")
			for _, path := range []string{"/", "/flush"} {
				e := c.echo(path, test.sent...)
				want := []string{test.want(e)}
				if up, down := e.up["X-Request-Id"], e.down["X-Request-Id"]; !slices.Equal(up, want) || !slices.Equal(down, want) {
					t.Errorf("%s: the upstream got %q, and the client %q; expected %q", path, up, down, want)
				}
			}
		})
	}
}

// Two handlers in one chain set the fields of both. The second one keeps what the first has made.
func TestHeaderOfTwoHandlers(t *testing.T) {
	t.Parallel()
	c := echoSite(t, "", "route {\nunique_ids {\nheader X-Request-Id\n}\nunique_ids {\ntrust X-Request-Id\nheader X-Request-Id\nheader X-B uuid_v7\n}\nPROXY\n}")
	e := c.echo("/", "X-Request-Id", "abc", "X-B", "b")
	for _, header := range []http.Header{e.up, e.down} {
		if !slices.Equal(header["X-Request-Id"], []string{e.txid}) || !slices.Equal(header["X-B"], []string{e.uuid}) {
			t.Errorf("the fields are %q and %q; expected %s and %s", header["X-Request-Id"], header["X-B"], e.txid, e.uuid)
		}
	}
}

// Every final answer has the field, also one of an error route, and no interim one has it. Bug: an
// upstream's trailer brought another ID.
func TestHeaderOfEachAnswer(t *testing.T) {
	t.Parallel()
	c := echoSite(t, "", `unique_ids {
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
	for name, test := range map[string]struct {
		servers, site string
		sent          []string
		want          func(echoed) string // the trace ID
		keeps         bool                // the state
	}{
		"none":              {site: header + "PROXY", want: own},
		"not adopted":       {site: header + "PROXY", sent: []string{"Traceparent", theirs}, want: own},
		"a state alone":     {site: header + "PROXY", want: own},
		"adopted":           {trustsUs, "unique_ids {\ntrust traceparent\nheader traceparent traceparent\n}\nPROXY", []string{"Traceparent", theirs}, caller, true},
		"invalid":           {trustsUs, "unique_ids {\ntrust traceparent\nheader traceparent traceparent\n}\nPROXY", []string{"Traceparent", "00-" + trace}, own, false},
		"Caddy's":           {site: header + "tracing\nPROXY", want: span, keeps: true},
		"continued":         {site: header + "tracing\nPROXY", sent: []string{"Traceparent", theirs}, want: caller, keeps: true},
		"Caddy's before":    {site: "route {\ntracing\n" + header + "PROXY\n}", want: span, keeps: true},
		"Caddy's, nested":   {site: header + "handle {\nroute /* {\ntracing\nPROXY\n}\n}", want: span, keeps: true},
		"Caddy's elsewhere": {site: header + "tracing /elsewhere\nPROXY", want: own},
		"another group":     {site: header + "handle / {\nPROXY\n}\nhandle {\ntracing\nPROXY\n}", want: own},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := echoSite(t, test.servers, test.site)
			e := c.echo("/", append(test.sent, "Tracestate", "a=b")...)
			up := e.up["Traceparent"]
			if len(up) != 1 || !strings.HasPrefix(up[0], "00-"+test.want(e)+"-") || up[0] != e.own || up[0] == theirs {
				t.Errorf("the upstream got %q; expected the trace ID %q, of %q", up, test.want(e), e.own)
			}
			if kept := e.up.Get("Tracestate") != ""; kept != test.keeps {
				t.Errorf("the state is kept: %t; expected %t", kept, test.keeps)
			}
			if down := e.down["Traceparent"]; down != nil {
				t.Errorf("the client got %q", down)
			}
		})
	}
}

// The trace ID of Caddy's span is known for the response.
func TestHeaderTraceID(t *testing.T) {
	t.Parallel()
	for tracing, known := range map[string]bool{"": true, "tracing": false} {
		e := echoSite(t, "", "unique_ids {\nheader X-Trace-Id trace_id\n}\n"+tracing+"\nPROXY").echo("/", "X-Trace-Id", "a")
		want := strings.ReplaceAll(e.uuid, "-", "")
		if !known {
			want = e.spans
		}
		if up, down := e.up.Get("X-Trace-Id"), e.down.Get("X-Trace-Id"); down != want || known != (up == want) || !known && up != "" {
			t.Errorf("%s: the upstream got %q, and the client %q; expected %q", tracing, up, down, want)
		}
	}
}
