package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
)

// One of two processes comes to another history than the one that it knows. It is refused there, and
// learns where that is, until it comes back. Bug: it made tables there, waited for its time to live,
// and let callers in beside the other one.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	const change = "ALTER ROLE orderly SET search_path = elsewhere"
	for name, test := range map[string]struct {
		move  func(t *testing.T, s *testpostgres.Server, link *relay)
		found string
	}{
		"an empty schema": {func(_ *testing.T, s *testpostgres.Server, _ *relay) {
			s.Query("orderly", "CREATE SCHEMA elsewhere; "+change)
		}, "found no tables of Orderly in schema elsewhere of database orderly"},
		"no schema": {func(_ *testing.T, s *testpostgres.Server, _ *relay) {
			s.Query("orderly", change)
		}, "found no tables of Orderly in schema \"(none)\""},
		"a schema with new tables": {func(_ *testing.T, s *testpostgres.Server, _ *relay) {
			s.Query("orderly", "CREATE SCHEMA elsewhere; SET search_path = elsewhere; "+schema+change)
		}, "other tables of Orderly, or others' rows in schema elsewhere"},
		"tables of others": {func(t *testing.T, s *testpostgres.Server, _ *relay) {
			s.Query("orderly", "CREATE SCHEMA elsewhere")
			enterSoon(t, ready(t, s.URL()+"&search_path=elsewhere"))
			s.Query("orderly", change)
		}, "other tables of Orderly, or others' rows in schema elsewhere"},
		"an empty server": {func(t *testing.T, _ *testpostgres.Server, link *relay) {
			empty := testpostgres.Start(t)
			link.Set(func() { link.To = empty.Addr })
		}, "found no tables of Orderly in schema public"},
		"a copy of the tables": {func(t *testing.T, s *testpostgres.Server, link *relay) {
			row := s.Query("orderly", "SELECT quote_literal(n) FROM (SELECT (o).* FROM (SELECT o FROM orderly_namespaces o) AS o) AS n")
			other := testpostgres.Start(t)
			other.Query("orderly", schema+"INSERT INTO orderly_namespaces OVERRIDING SYSTEM VALUE SELECT ("+row+"::orderly_namespaces).*")
			link.Set(func() { link.To = other.Addr })
		}, "other tables of Orderly, or others' rows in schema public"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testpostgres.Start(t)
			link, stays := startRelay(t, server.Addr), ready(t, server.URL())
			moved := ready(t, strings.Replace(link.url(), "?", "?application_name=moved&", 1))
			enterSoon(t, moved)
			turn, revoked := held(t, stays)
			test.move(t, server, link)
			cut := func() {
				server.Query("orderly", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'moved'")
				link.Cut()
			}
			cut()
			wantRefused(t, moved, test.found)
			for end := time.Now().Add(2 * shortTTL); time.Now().Before(end); {
				if _, err := moved.Enter(t.Context(), arrivalFor(5*time.Second)); err == nil {
					t.Fatal("two are inside")
				}
			}
			if len(revoked) > 0 {
				t.Error(<-revoked)
			}
			turn.Leave()
			server.Query("orderly", "ALTER ROLE orderly RESET search_path")
			link.Set(func() { link.To = server.Addr })
			cut()
			enterSoon(t, moved)
		})
	}
}
