//go:build unix

package integration_test

import (
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// trust adopts the ID of a trusted proxy, and drops that of any other caller. By default,
// nobody is trusted.
func TestTrust(t *testing.T) {
	const site = "unique_ids {\n trust X-Request-Id\n}\nrespond {http.request.txid}|{header.X-Request-Id}"
	url := make(map[string]string) // by who is trusted
	for trusted, servers := range map[string]string{
		"it":      "trusted_proxies static 127.0.0.1/32",
		"another": "trusted_proxies static 192.0.2.1/32",
		"nobody":  "",
	} {
		url[trusted] = start(t, setup{servers: servers, site: site}).url
	}
	for _, test := range []struct {
		name, trusted, value string
		kept                 bool
	}{
		{"an ID", "it", "abc-DEF_1.2@x", true},
		{"128 characters", "it", strings.Repeat("a", 128), true},
		{"129 characters", "it", strings.Repeat("a", 129), false},
		{"empty", "it", "", false},
		{"a space", "it", "a b", false},
		{"beyond ASCII", "it", "aé", false},
		{"braces", "it", "{env.HOME}", false},
		{"another is trusted", "another", "caller1", false},
		{"nobody is trusted", "nobody", "abc", false},
	} {
		checkTrusted(t, ask(t, url[test.trusted], "X-Request-Id", test.value), test.value, test.kept)
	}
	checkTrusted(t, ask(t, url["it"], "X-Request-Id", "a", "X-Request-Id", "b"), "a", false)
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

// Bug: a second unique_ids on the way had no effect: an untrusted value of the header
// field that it trusts reached the upstream.
func TestInnerTrustStripsUntrustedHeader(t *testing.T) {
	addr := testcaddy.ReserveAddr(t)
	testcaddy.Start(t, `http://`+addr+` {
	route {
		unique_ids
		handle /own* {
			request_header X-Request-Id {http.request.txid}
		}
		unique_ids {
			trust X-Request-Id
		}
		respond {http.request.txid}|{header.X-Request-Id}
	}
}
`)
	checkTrusted(t, ask(t, "http://"+addr, "X-Request-Id", "abc"), "abc", false)
	if txid, header, _ := strings.Cut(ask(t, "http://"+addr+"/own", "X-Request-Id", "abc"), "|"); header != txid {
		t.Errorf("the header field with the txid %s became %q", txid, header)
	}
}
