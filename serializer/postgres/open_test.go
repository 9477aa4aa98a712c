package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Bug: the error had a line for each attempt. It must still be known as that of a connection.
func TestRefusalIsOneLine(t *testing.T) {
	st, err := Open(Options{URL: "postgres://a@127.0.0.1:1,127.0.0.1:1/b"})
	if err == nil {
		defer st.Close()
		_, _, err = st.connect(t.Context(), time.Second)
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	if !connecting || strings.Contains(err.Error(), "\n") || strings.Count(err.Error(), "127.0.0.1:1 ") < 2 {
		t.Errorf("%q", err)
	}
}

// Bugs: parts of passwords were in the errors of malformed URLs, and in the log. A namespace that
// PostgreSQL cannot keep was refused only by the server, again and again.
func TestInvalidOptions(t *testing.T) {
	const special = "such as %40 for @"
	for url, want := range map[string]string{
		"":                                     "expected a URL such as postgres://",
		"mysql://u:hunter@a":                   "expected a URL such as postgres://",
		"host=a password=hunter":               "expected a URL such as postgres://",
		"postgres://u:x/hunter@a/b":            special,
		"postgres://u:1/hunter@a/b":            special,
		"postgres://u:x?hunter@a/b":            special,
		"postgres://u:x#hunter@a/b":            special,
		"postgres://u:x@hunter@a/b":            special,
		"postgres://u:hunter%zz@a/b":           special,
		"postgres://a/b?password=x&hunter":     special,
		"postgres://a/b?password=x`: y&hunter": special,
		"postgres://u:hunter@a:b/c":            "invalid port",
		"postgres://u:hunter@a/c?sslmode=none": "sslmode is invalid",
	} {
		if _, err := parseURL(url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v; expected %q", url, err, want)
		}
	}
	for want, o := range map[string]Options{
		"such as postgres://":  {},
		"time to live 1s":      {URL: "postgres://a/b", TTL: time.Second},
		`namespace "a\x00"`:    {URL: "postgres://a/b", Namespace: "a\x00"},
		`namespace "\xff"; ex`: {URL: "postgres://a/b", Namespace: "\xff"},
	} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected %s", err, want)
		}
	}
}
