package uniqueids_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

func TestTrust(t *testing.T) {
	_, url := idsSite(t, "trust X-Request-Id", "{http.request.txid}|{header.X-Request-Id}")
	long := strings.Repeat("a", 128)
	for _, test := range []struct {
		name, value string
		kept        bool
	}{
		{"an ID", "abc-DEF_1.2@x", true},
		{"one character", "a", true},
		{"128 characters", long, true},
		{"129 characters", long + "a", false},
		{"200 characters", strings.Repeat("b", 200), false},
		{"empty", "", false},
		{"a space", "a b", false},
		{"a tab", "a\tb", false},
		{"beyond ASCII", "aé", false},
		{"a quote", `a"b`, false},
		{"braces", "{env.HOME}", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkTrusted(t, ask(t, url, "X-Request-Id", test.value), test.value, test.kept)
		})
	}
	t.Run("two values", func(t *testing.T) {
		checkTrusted(t, ask(t, url, "X-Request-Id", "a", "X-Request-Id", "b"), "a", false)
	})
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
		t.Errorf("txid %q: %v", txid, err)
	}
	if header != "" {
		t.Errorf("what is behind sees the header %q", header)
	}
}

func TestNobodyIsTrustedByDefault(t *testing.T) {
	addr := testcaddy.ReserveAddr(t)
	testcaddy.Start(t, "http://"+addr+" {\n\tunique_ids {\n\t\ttrust X-Request-Id\n\t}\n\trespond {http.request.txid}|{header.X-Request-Id}\n}\n")
	checkTrusted(t, ask(t, "http://"+addr, "X-Request-Id", "abc"), "abc", false)
}

// A second unique_ids on the way did nothing at all: a stranger's value of the
// header field that it is to trust got to the upstream.
func TestInnerTrustStripsStrangersHeader(t *testing.T) {
	addr := testcaddy.ReserveAddr(t)
	server := testcaddy.Start(t, `http://`+addr+` {
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
	testcaddy.Eventually(t, "the log says that the second has no say", func() error {
		if !strings.Contains(server.Log.String(), "unique_ids before it has named the request") {
			return errors.New("it does not")
		}
		return nil
	})
}
