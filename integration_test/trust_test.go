//go:build unix

package integration_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// trust adopts the ID of a trusted proxy, and drops that of any other caller. By default,
// nobody is trusted.
func TestTrust(t *testing.T) {
	t.Parallel()
	const site = "unique_ids {\n trust X-Request-Id\n}\nrespond {http.request.txid}|{header.X-Request-Id}"
	sites := make(map[string]*caddy) // by who is trusted
	for trusted, servers := range map[string]string{
		"it":      "trusted_proxies static 127.0.0.1/32",
		"another": "trusted_proxies static 192.0.2.1/32",
		"nobody":  "",
	} {
		sites[trusted] = start(t, setup{servers: servers, site: site})
	}
	for _, test := range []struct {
		name, trusted, value string
		kept                 bool
	}{
		{"an ID", "it", "abc-DEF_1.2@x", true},
		// Bug: these IDs were dropped.
		{"HAProxy's format", "it", "7F000001:8B5E_7F000001:0050_5F0E1A2B_0001:3F2A", true},
		{"AWS's", "it", "Root=1-67891233-abcdef012345678912345678", true},
		{"CloudFront's", "it", "3CEsv+8h/JxcRP5yU6sQ4FTmR1dQsj0vKgLkRZk5ZZ0Vx1rWpQw==", true},
		{"128 characters", "it", strings.Repeat("a", 128), true},
		{"129 characters", "it", strings.Repeat("a", 129), false},
		{"empty", "it", "", false},
		{"a space", "it", "a b", false},
		{"beyond ASCII", "it", "aé", false},
		{"braces", "it", "{env.HOME}", false},
		{"another is trusted", "another", "caller1", false},
		{"nobody is trusted", "nobody", "abc", false},
	} {
		checkTrusted(t, sites[test.trusted].ask("X-Request-Id", test.value), test.value, test.kept)
	}
	checkTrusted(t, sites["it"].ask("X-Request-Id", "a", "X-Request-Id", "b"), "a", false)
}

func checkTrusted(t *testing.T, answer, value string, kept bool) {
	t.Helper()
	txid, header, _ := strings.Cut(answer, "|")
	if kept {
		if txid != value || header != value {
			t.Errorf("txid %q, header %q; want both %q", txid, header, value)
		}
		return
	}
	if _, err := uniqueid.ParseTXID(txid); err != nil {
		t.Errorf("of %q, the txid is %q: %v", value, txid, err)
	}
	if header != "" {
		t.Errorf("of %q, the upstream sees the header %q", value, header)
	}
}

// Bug: IDs that did not fit were dropped without a word. The log says why, once a minute.
func TestDroppedIDIsLogged(t *testing.T) {
	t.Parallel()
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	const trusted = "trusted_proxies static 127.0.0.1/32"
	for _, test := range []struct {
		servers, header string
		values          []string
		level, reason   string
	}{
		{trusted, "X-Request-Id", []string{"a b"}, "warn", `character ' ' at offset 1 is none of [A-Za-z0-9._@:=+/-]`},
		{trusted, "X-Request-Id", []string{"aé"}, "warn", `character 'é' at offset 1 is none of [A-Za-z0-9._@:=+/-]`},
		{trusted, "X-Request-Id", []string{""}, "warn", "it has 0 characters; expected 1 to 128"},
		{trusted, "X-Request-Id", []string{strings.Repeat("a", 129)}, "warn", "it has 129 characters; expected 1 to 128"},
		{trusted, "X-Request-Id", []string{"a", "b"}, "warn", "the field comes 2 times"},
		{trusted, "Traceparent", []string{good, good}, "warn", "the field comes 2 times"},
		{trusted, "Traceparent", []string{"ff" + good[2:]}, "warn", `parsing traceparent "ff` + good[2:] + `": at offset 0: want a version from 00 to fe, found "ff"`},
		{"", "X-Request-Id", []string{"a"}, "info", "the peer is none of the server's trusted_proxies"},
	} {
		c := start(t, setup{servers: test.servers, site: "log\nunique_ids {\n trust " + test.header + "\n}\nrespond ok"})
		var header []string
		for _, value := range test.values {
			header = append(header, test.header, value)
		}
		for range 3 {
			c.ask(header...)
		}
		c.awaitEntries("handled request", 3) // after all others
		dropped := c.Log.Entries("dropped the caller's ID")
		if len(dropped) != 1 || dropped[0]["level"] != test.level || dropped[0]["reason"] != test.reason ||
			dropped[0]["header"] != test.header || dropped[0]["peer"] == nil {
			t.Errorf("the log says %v; expected %s, %s", dropped, test.level, test.reason)
		}
	}
}

// Behind the PROXY protocol, the peer is the client that the proxy names.
func TestTrustBehindPROXYProtocol(t *testing.T) {
	t.Parallel()
	for trusted, kept := range map[string]bool{"127.0.0.1/32": false, "203.0.113.7/32": true, "0.0.0.0/0 ::/0": true} {
		c := start(t, setup{
			servers: "listener_wrappers {\nproxy_protocol {\nallow 127.0.0.1/32\n}\n}\ntrusted_proxies static " + trusted,
			site:    "unique_ids {\n trust X-Request-Id\n}\nrespond {http.request.txid}|{header.X-Request-Id}",
		})
		conn := c.dial("PROXY TCP4 203.0.113.7 203.0.113.8 1234 80\r\nGET / HTTP/1.1\r\nHost: " + c.host() + "\r\nX-Request-Id: abc\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		check(t, err)
		text, err := io.ReadAll(resp.Body)
		check(t, err)
		checkTrusted(t, string(text), "abc", kept)
	}
}

// Bug: a second unique_ids on the way had no effect: an untrusted value of the header
// field that it trusts reached the upstream.
func TestInnerTrustStripsUntrustedHeader(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: `route {
		unique_ids
		handle /own* {
			request_header X-Request-Id {http.request.txid}
		}
		unique_ids {
			trust X-Request-Id
		}
		respond {http.request.txid}|{header.X-Request-Id}
	}`})
	checkTrusted(t, c.ask("X-Request-Id", "abc"), "abc", false)
	if txid, header, _ := strings.Cut(c.get("/own", "X-Request-Id", "abc").Text, "|"); header != txid {
		t.Errorf("the header field with the txid %s became %q", txid, header)
	}
}
