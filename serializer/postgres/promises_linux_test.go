package postgres

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

const shortTTL = 3 * time.Second

func TestMain(m *testing.M) { testlease.Main(m, openAt) }

func urlOf(address string) string {
	return "postgres://orderly@" + address + "/orderly?sslmode=disable"
}

func openAt(address string, ttl time.Duration) (serializer.Store, error) {
	return Open(Options{URL: urlOf(address), TTL: ttl})
}

// server is one whose clock can be set.
type server struct{ *testpostgres.Server }

func startServer(t testing.TB, settings ...string) server {
	s := testpostgres.Start(t, settings...)
	makeSettable(s)
	return server{s}
}

func (s server) Address() string { return s.Addr }

func (s server) Tickets() int {
	n, _ := strconv.Atoi(s.Query("orderly", "SELECT count(*) FROM orderly_tickets WHERE NOT gone"))
	return n
}

// startPooler runs pgbouncer in transaction mode in front of the server at an address. It refuses to be root.
func startPooler(t testing.TB, server string) (url string) {
	t.Helper()
	addr, file, user := testprocess.FreeAddr(t), filepath.Join(t.TempDir(), "pgbouncer.ini"), []string{}
	host, port, _ := net.SplitHostPort(server)
	ownHost, ownPort, _ := net.SplitHostPort(addr)
	testlease.Must(t, os.WriteFile(file, fmt.Appendf(nil, "[databases]\norderly = user=orderly host=%s port=%s\n[pgbouncer]\n"+
		"listen_addr=%s\nlisten_port=%s\nunix_socket_dir=\nauth_type=any\npool_mode=transaction\ndefault_pool_size=4\n",
		host, port, ownHost, ownPort), 0o600))
	if os.Geteuid() == 0 {
		user = []string{"--user", "nobody"}
	}
	testprocess.Start(t, exec.Command(testprocess.Find("pgbouncer"), append(user, file)...)).AwaitText("process up")
	return urlOf(addr)
}

// lockTables locks the tickets for a while, and rewrites them.
func lockTables(s *testpostgres.Server, d time.Duration) {
	s.Query("orderly", fmt.Sprintf("BEGIN; LOCK orderly_tickets; SELECT pg_sleep(%f); COMMIT", d.Seconds()))
	s.Query("orderly", "VACUUM FULL orderly_tickets")
}

// setClock sets the clock of a server that [makeSettable] has prepared.
func setClock(ahead string) func(*testpostgres.Server) {
	return func(s *testpostgres.Server) { s.Query("orderly", "UPDATE test.clock SET ahead = '"+ahead+"'") }
}

func TestPromises(t *testing.T) {
	const longer = 3 * shortTTL // so that a busy machine loses none of the leases
	kept := func(ttl time.Duration, do func(server), settings ...string) testlease.Fault[server] {
		return testlease.Fault[server]{
			Settings: append(settings, "synchronous_commit=off"), TTL: ttl, // others' commits need not reach the disk
			Do: func(_ *testing.T, s server, _ []*testrelay.Relay) { do(s) },
		}
	}
	cut := func(_ *testing.T, _ server, links []*testrelay.Relay) {
		for end := time.Now().Add(longer + time.Second); time.Now().Before(end); {
			time.Sleep(time.Second)
			links[0].Cut()
			links[1].Cut()
		}
	}
	losses := make(map[string]testlease.Loss[server])
	for _, sql := range []string{
		"DELETE FROM orderly_tickets",
		"UPDATE orderly_tickets SET gone = true",
		"DELETE FROM orderly_sessions",
		"DELETE FROM orderly_namespaces",
		"DROP TABLE orderly_namespaces, orderly_sessions, orderly_tickets, orderly_pauses",
	} {
		loss := testlease.Loss[server]{Do: func(s server) { s.Query("orderly", sql) }}
		if strings.Contains(sql, "namespaces") {
			loss.Restart = "restart all Caddys"
		}
		losses[sql] = loss
	}
	settable := func(ahead string) func(server) { return func(s server) { setClock(ahead)(s.Server) } }
	testlease.Promises[server]{
		TTL: shortTTL, Start: startServer, Open: openAt,
		Kept: map[string]testlease.Fault[server]{
			"restarted":       kept(time.Minute, func(s server) { s.Stop(); s.Run() }),
			"killed":          kept(time.Minute, func(s server) { s.Kill(); s.Run() }),
			"locked":          kept(longer, func(s server) { lockTables(s.Server, longer+time.Second) }),
			"connections cut": {Settings: []string{"idle_session_timeout=700ms"}, TTL: longer, Do: cut},
		},
		Lost: losses,
		Rights: map[string]testlease.Right[server]{"to update tickets": {
			Prepare: func(s server) {
				s.Query("orderly", "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA test TO app; GRANT SELECT ON test.clock TO app")
				s.Query("orderly", "ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO app")
			},
			Open: func(address string, ttl time.Duration) (serializer.Store, error) {
				return Open(Options{URL: strings.Replace(urlOf(address), "orderly@", "app@", 1), TTL: ttl})
			},
			Lose: func(s server) { s.Query("orderly", "REVOKE UPDATE ON orderly_tickets FROM app") },
			Back: func(s server) { s.Query("orderly", "GRANT UPDATE ON orderly_tickets TO app") },
			Says: "permission denied for table",
		}},
		Clocks:    map[string]func(server){"forward": settable("1 hour"), "back": settable("-1 hour")},
		Elsewhere: elsewhere,
	}.Run(t)
}

// elsewhere are other histories than the one that a process knows.
var elsewhere = func() map[string]testlease.Elsewhere[server] {
	const change = "ALTER ROLE orderly SET search_path = elsewhere"
	otherSchema := func(found, sql string) testlease.Elsewhere[server] {
		return testlease.Elsewhere[server]{Found: found, Prepare: func(_ *testing.T, s server, _ *testrelay.Relay) (move, back func()) {
			return func() { s.Query("orderly", sql+change) }, func() { s.Query("orderly", "ALTER ROLE orderly RESET search_path") }
		}}
	}
	otherServer := func(found string, prepare func(s server, other *testpostgres.Server)) testlease.Elsewhere[server] {
		return testlease.Elsewhere[server]{Found: found, Prepare: func(t *testing.T, s server, link *testrelay.Relay) (move, back func()) {
			other := testpostgres.StartOther(t)
			return func() {
				prepare(s, other)
				link.Lead(other.Addr)
			}, func() { link.Lead(s.Addr) }
		}}
	}
	const others = "other tables of Orderly, or others' rows in schema "
	return map[string]testlease.Elsewhere[server]{
		"an empty schema":          otherSchema("found no tables of Orderly in schema elsewhere of database orderly", "CREATE SCHEMA elsewhere; "),
		"no schema":                otherSchema("found no tables of Orderly in schema \"(none)\"", ""),
		"a schema with new tables": otherSchema(others+"elsewhere", "CREATE SCHEMA elsewhere; SET search_path = elsewhere; "+schema),
		"tables of others": {Found: others + "elsewhere", Prepare: func(t *testing.T, s server, _ *testrelay.Relay) (move, back func()) {
			s.Query("orderly", "CREATE SCHEMA elsewhere")
			testlease.EnterSoon(t, ready(t, s.URL()+"&search_path=elsewhere"))
			return func() { s.Query("orderly", change) }, func() { s.Query("orderly", "ALTER ROLE orderly RESET search_path") }
		}},
		"an empty server": otherServer("found no tables of Orderly in schema public", func(server, *testpostgres.Server) {}),
		"a copy of the tables": otherServer(others+"public", func(s server, other *testpostgres.Server) {
			row := s.Query("orderly", "SELECT quote_literal(n) FROM (SELECT (o).* FROM (SELECT o FROM orderly_namespaces o) AS o) AS n")
			other.Query("orderly", schema+"INSERT INTO orderly_namespaces OVERRIDING SYSTEM VALUE SELECT ("+row+"::orderly_namespaces).*")
		}),
	}
}()

// Many wait.
func TestCrowd(t *testing.T) {
	t.Parallel()
	n := 1000
	if *testlease.Long {
		n = 10000
	}
	s := startServer(t)
	testlease.Crowd(t, func() *serializer.Engine { return testlease.Ready(t, open(t, Options{URL: s.URL(), TTL: time.Minute})) }, s.Tickets, n)
}

func BenchmarkHandOver(b *testing.B) {
	server := testpostgres.Start(b, "fsync=on")
	for name, url := range map[string]string{"direct": server.URL(), "pooled": startPooler(b, server.Addr)} {
		b.Run(name, func(b *testing.B) {
			testlease.HandOver(b, func() *serializer.Engine { return ready(b, url) })
		})
	}
}

// open makes an engine, as a process does, and does not wait for the server.
func open(t testing.TB, o Options) *serializer.Engine {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = shortTTL
	}
	store, err := Open(o)
	testlease.Must(t, err)
	return testlease.NewEngine(t, store)
}

// ready makes an engine, and waits until it has a lease.
func ready(t testing.TB, url string) *serializer.Engine {
	t.Helper()
	return testlease.Ready(t, open(t, Options{URL: url}))
}

// The suite for all stores, with connections to the server, and through a pooler, where
// nobody is notified. Bug: where transactions are serializable by default, no session began.
func TestStoreConforms(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t, "default_transaction_isolation=serializable")
	for name, url := range map[string]string{
		"direct": server.URL(),
		"pooled": startPooler(t, server.Addr),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var namespaces atomic.Int64
			storetest.Run(t, storetest.Options{}, func(t testing.TB, n int) (stores []serializer.Store) {
				namespace := fmt.Sprintf("%s_%d", name, namespaces.Add(1))
				for range n {
					store, err := Open(Options{URL: url, Namespace: namespace})
					testlease.Must(t, err)
					stores = append(stores, store)
				}
				return stores
			})
		})
	}
}

// replicated is a server with a standby, and the links of processes to it.
type replicated struct {
	t                *testing.T
	ttl              time.Duration
	primary, standby *testpostgres.Server
	links            [][]*testrelay.Relay
}

func (r *replicated) faults() map[string]func() {
	all := func(do func(*testrelay.Relay)) {
		for _, links := range r.links {
			do(links[0])
		}
	}
	return map[string]func(){
		"the server killed": func() {
			r.primary.Kill()
			time.Sleep(time.Second)
			r.primary.Run()
		},
		"the server restarted": func() {
			r.primary.Stop()
			r.primary.Run()
		},
		"the server frozen": func() {
			r.primary.Freeze()
			time.Sleep(r.ttl + time.Second)
			r.primary.Thaw()
		},
		"a process led to an empty schema": func() {
			r.primary.Query("orderly", "CREATE SCHEMA IF NOT EXISTS elsewhere; ALTER ROLE orderly SET search_path = elsewhere")
			r.links[rand.IntN(len(r.links))][0].Cut()
			time.Sleep(2*r.ttl + time.Second)
			r.primary.Query("orderly", "ALTER ROLE orderly RESET search_path")
			r.primary.Query("orderly", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
		},
		"answers to commits lost": func() {
			for range 20 {
				all(func(link *testrelay.Relay) { link.Lose("COMMIT") })
				time.Sleep(100 * time.Millisecond)
			}
		},
		"tables locked": func() { lockTables(r.primary, 3*time.Second) },
		"the clock set": func() { setClock([]string{"1 hour", "0", "-1 hour"}[rand.IntN(3)])(r.primary) },
		"conflicts": func() {
			r.primary.Query("orderly", `CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF random() < 0.3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$;
				CREATE TRIGGER conflict BEFORE INSERT OR UPDATE ON orderly_tickets FOR EACH ROW EXECUTE FUNCTION conflict()`)
			time.Sleep(2 * time.Second)
			r.primary.Query("orderly", "DROP FUNCTION conflict CASCADE")
		},
		"a standby promoted": func() {
			r.primary.Kill()
			r.standby.Promote()
			all(func(link *testrelay.Relay) { link.Lead(r.standby.Addr) })
			r.primary, r.standby = r.standby, r.standby.Standby()
			time.Sleep(r.ttl + time.Second)
		},
	}
}

// One of the three processes comes through a pooler.
func TestHistories(t *testing.T) {
	r := &replicated{t: t, ttl: 5 * time.Second, primary: testpostgres.Start(t)}
	makeSettable(r.primary)
	r.standby = r.primary.Standby()
	var engines []*serializer.Engine
	for i := range 3 {
		link := testrelay.Start(t, r.primary.Addr)
		url := urlOf(link.Addr)
		if i == 2 {
			url = startPooler(t, link.Addr)
		}
		r.links, engines = append(r.links, []*testrelay.Relay{link}), append(engines, open(t, Options{URL: url, TTL: r.ttl}))
		testlease.EnterSoon(t, engines[i]) // some faults need the tables
	}
	testlease.Histories{TTL: r.ttl, Engines: engines, Links: r.links, Faults: r.faults}.Run(t)
}
