package postgres

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// A process's rounds cannot reach the server, but renewals can: its old connections still
// work, or short messages get through. It lets its lease end. Bug: it renewed it, so its
// ticket blocked all others, its arrivals waited, and an eviction never returned. Each try
// left one more connection open on the server.
func TestRoundsCutOff(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*testrelay.Relay){
		"new connections hang": func(r *testrelay.Relay) { r.Mute = true },
		"long messages vanish": func(r *testrelay.Relay) { r.Most = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testpostgres.Start(t)
			link, other := testrelay.Start(t, server.Addr), ready(t, server.URL())
			e := ready(t, strings.Replace(urlOf(link.Addr), "?", "?application_name=cut_off&", 1))
			holder := testlease.Enter(t, e)
			next, since := testlease.Join(t, other), time.Now()
			backends := func(more string) string {
				return server.Query("orderly", "SELECT coalesce(string_agg(pid::text, ',' ORDER BY pid), '') FROM pg_stat_activity WHERE application_name = 'cut_off' AND "+more)
			}
			wait.Until(t, "the lease is renewed", func() bool { return backends("query LIKE '%renewals%'") != "" })
			link.Set(func() { fault(link) })
			server.Query("orderly", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut_off' AND query NOT LIKE '%renewals%'")
			holder.Turn.Leave()
			testlease.Must(t, other.Evict(t.Context(), "a_", holder.Turn.Token()))
			next.LeaveWithin(t, since, wait.Patience)
			testlease.WantRefused(t, e, "")
			open := backends("true")
			wait.Until(t, "the server ends the connections that are open", func() bool {
				return open == "" || backends("pid IN ("+open+")") == ""
			})
			link.Cut()
			link.Set(func() { link.Mute, link.Most = false, 0 })
			testlease.EnterSoon(t, e)
		})
	}
}

// Bugs: of several hosts, the first one accepted connections and never answered. The second and
// third connection were made while the lease ran. If that took most of its time, it was lost at
// its first renewal, and so was the next one. Then both were made before, one after the other: if
// the server ended the first one, which was idle meanwhile, there was never a lease.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t, "idle_session_timeout=3s")
	silent := testrelay.Start(t, server.Addr)
	silent.Set(func() { silent.Mute = true })
	url := strings.Replace(server.URL(), "@", "@"+silent.Addr+",", 1)
	o := Options{URL: url + "&connect_timeout=4", TTL: 3 * shortTTL} // so that a busy machine loses no lease
	e := open(t, o)
	holder := testlease.Enter(t, e)
	renewals := func() string { return server.Query("orderly", "SELECT max(renewals) FROM orderly_sessions") }
	wait.Until(t, "the lease is renewed, or lost", func() bool { return renewals() > "1" || len(holder.Revoked) > 0 })
	if len(holder.Revoked) > 0 {
		t.Error(<-holder.Revoked)
	}
	holder.Turn.Leave()
}

// Bug: a process whose rounds took longer than its statement_timeout, and renewals did not, kept
// its lease for ever. It could not take its tickets out, so nobody else entered.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	e, other := ready(t, server.URL()+"&statement_timeout=500"), ready(t, server.URL())
	holder := testlease.Enter(t, e)
	next, since := testlease.Join(t, other), time.Now()
	server.Query("orderly", `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END';
		CREATE TRIGGER slow AFTER UPDATE ON orderly_tickets WHEN (current_setting('statement_timeout') <> '0') EXECUTE FUNCTION slow()`)
	holder.Turn.Leave()
	next.LeaveWithin(t, since, wait.Patience)
}

// A standby is promoted that has not got everything. Nobody enters until all leases have
// ended that the old primary granted, and tokens keep growing. Bugs: they did not if the new
// clock was behind, or if the old one had been ahead when the commits were made that are lost.
// Nobody waited for a lease that was longer than those which the standby knew. Such a ttl must
// have been used before.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := testpostgres.Start(t)
	makeSettable(primary)
	standby := primary.Standby()
	links := []*testrelay.Relay{testrelay.Start(t, primary.Addr), testrelay.Start(t, primary.Addr)}
	long, other := Options{URL: urlOf(links[0].Addr), TTL: 6 * shortTTL}, ready(t, urlOf(links[1].Addr))
	before := open(t, long)
	testlease.EnterSoon(t, before)
	testlease.Must(t, before.Close())
	wait.Until(t, "the standby follows", func() bool {
		out, err := standby.TryQuery("orderly", "SELECT (SELECT count(*) FROM orderly_sessions), (SELECT count(*) FROM orderly_tickets WHERE gone)")
		return err == nil && out == "1|1"
	})
	standby.Stop()
	primary.Query("orderly", "UPDATE test.clock SET ahead = '1 hour'")
	holder := testlease.Enter(t, testlease.Ready(t, open(t, long))) // the standby will not know this
	testlease.Ready(t, other)                                       // so it has seen the number
	links[0].Part(true)
	primary.Kill()
	standby.Run()
	standby.Promote()
	standby.Query("orderly", "UPDATE test.clock SET ahead = '-1 hour'")
	links[1].Lead(standby.Addr)
	token := testlease.EnterSoon(t, other)
	if len(holder.Revoked) == 0 {
		t.Error("two were inside")
	}
	testlease.WantGreater(t, token, holder.Turn.Token())
	holder.Turn.Leave()
}

// The server ends a connection in the middle of a commit, so nobody says that the ticket was taken. It is
// found, and no other one is left.
func TestCommitUnknown(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t, "synchronous_commit=on")
	link := testrelay.Start(t, server.Addr)
	e := open(t, Options{URL: urlOf(link.Addr), TTL: time.Minute}) // no renewal waits, which would lock the session's row
	testlease.EnterSoon(t, e)
	tickets := func() string {
		return server.Query("orderly", "SELECT count(*) FROM orderly_tickets WHERE NOT gone")
	}
	server.Query("orderly", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	server.Query("orderly", "SELECT pg_reload_conf()")
	go func() {
		wait.Until(t, "a commit waits", func() bool {
			ended, _ := server.TryQuery("orderly", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%"insert"%'`)
			return ended == "t"
		})
		_, _ = server.TryQuery("orderly", "ALTER SYSTEM RESET synchronous_standby_names")
		_, _ = server.TryQuery("orderly", "SELECT pg_reload_conf()")
	}()
	turn := testlease.Enter(t, e).Turn
	if n := tickets(); n != "1" {
		t.Errorf("%s tickets", n)
	}
	turn.Leave()
	wait.Until(t, "no ticket is left", func() bool { return tickets() == "0" })
	// Its caller gives up while the answer is lost: the ticket is withdrawn.
	link.Lose(`EXECUTE "insert"`)
	if _, err := e.Enter(t.Context(), testlease.Arrival(testlease.Queue, time.Millisecond)); err == nil {
		t.Log("entered after all")
	}
	testlease.EnterSoon(t, e)
	wait.Until(t, "no ticket is left", func() bool { return tickets() == "0" })
}

// Without the right to make tables, the error has the SQL. With tables, but without the
// right to write to them, it names the table. Where nobody may write, it says so, until somebody may.
func TestRights(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	server.Query("orderly", "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE app LOGIN")
	e := open(t, Options{URL: strings.Replace(server.URL(), "orderly@", "app@", 1)})
	testlease.WantRefused(t, e, "CREATE TABLE IF NOT EXISTS orderly_tickets")
	server.Query("orderly", schema)
	testlease.WantRefused(t, e, "permission denied for table")
	server.Query("orderly", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app")
	testlease.EnterSoon(t, e)
	readOnly := func(is string) {
		server.Query("orderly", "ALTER SYSTEM SET default_transaction_read_only = "+is)
		server.Query("orderly", "SELECT pg_reload_conf()")
	}
	readOnly("on")
	testlease.WantRefused(t, e, "read")
	readOnly("off")
	testlease.EnterSoon(t, e)
}

// After the password has changed, connections that are open go on. New ones are refused
// with a message that says so.
func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	hba := filepath.Join(server.Data, "pg_hba.conf")
	testlease.Must(t, os.WriteFile(hba, []byte("host all app all scram-sha-256\nhost all all all trust\n"), 0)) //nolint:dupword // columns
	server.Query("orderly", "SELECT pg_reload_conf()")
	server.Query("orderly", "CREATE ROLE app SUPERUSER LOGIN PASSWORD 'secret'")
	link := testrelay.Start(t, server.Addr)
	e := ready(t, strings.Replace(urlOf(link.Addr), "orderly@", "app:secret@", 1))
	server.Query("orderly", "ALTER ROLE app PASSWORD 'other'")
	testlease.EnterSoon(t, e)
	link.Cut()
	testlease.WantRefused(t, e, "password authentication failed")
	server.Query("orderly", "ALTER ROLE app PASSWORD 'secret'")
	testlease.EnterSoon(t, e)
}

// A process that was slow for some time finds that rows were deleted that it has not seen:
// it reads everything.
func TestSlowProcess(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	link := testrelay.Start(t, server.Addr)
	holder := testlease.Enter(t, ready(t, server.URL()))
	next := testlease.Join(t, ready(t, urlOf(link.Addr)))
	link.Part(true)
	holder.Turn.Leave()
	wait.Until(t, "the ticket is out", func() bool {
		return server.Query("orderly", "DELETE FROM orderly_tickets WHERE gone RETURNING 1") == "1"
	})
	server.Query("orderly", "UPDATE orderly_namespaces SET trimmed = last")
	link.Part(false)
	next.LeaveWithin(t, time.Now(), wait.Patience)
}

// Bug: renewals were not on the disk of a server with synchronous_commit=off. After a crash,
// the lease of a holder had ended for the others, and not for itself.
func TestRenewalsAreDurable(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t, "synchronous_commit=off", "wal_writer_delay=10s")
	link := testrelay.Start(t, server.Addr)
	testlease.EnterSoon(t, open(t, Options{URL: urlOf(link.Addr), TTL: 4 * time.Second}))
	renewals := func() int {
		n, _ := strconv.Atoi(server.Query("orderly", "SELECT max(renewals) FROM orderly_sessions"))
		return n
	}
	begun := renewals()
	wait.Until(t, "the lease is renewed", func() bool { return renewals() != begun })
	link.Part(true)
	renewed := renewals()
	server.Kill()
	server.Run()
	if after := renewals(); after < renewed { // one more may have been under way
		t.Errorf("the lease was renewed %d times before a crash, and %d times afterwards", renewed, after)
	}
}
