package postgres

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// makeSettable lets a test set a server's clock, as far as the store sees it. It must come
// before the tables are made.
func makeSettable(server *testpostgres.Server) {
	server.Query("orderly", `CREATE SCHEMA test; CREATE TABLE test.clock AS SELECT interval '0' AS ahead;
		CREATE FUNCTION test.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM test.clock'`)
	server.Query("orderly", "ALTER DATABASE orderly SET search_path = test, pg_catalog")
}

// Bug: when an operator deleted the session of a process that was gone, its tickets stayed.
func TestSessionDeleted(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	link := testrelay.Start(t, server.Addr)
	gone := open(t, Options{URL: urlOf(link.Addr), TTL: time.Hour})
	holder := testlease.Enter(t, gone)
	next := testlease.Join(t, ready(t, server.URL()))
	link.Part(true)
	server.Query("orderly", "DELETE FROM orderly_sessions WHERE id = (SELECT session FROM orderly_tickets ORDER BY number LIMIT 1)")
	next.LeaveWithin(t, time.Now(), wait.Patience)
	link.Cut()
	holder.Turn.Leave()
}

// Bug: after the server's clock had been ahead, rows of tickets that were out stayed until the
// clock had caught up. Those of pauses that were over stayed for ever.
func TestRowsAreTrimmed(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	e := ready(t, server.URL())
	testlease.Must(t, e.Pause(t.Context(), "b_", time.Now().Add(time.Hour)))
	testlease.Must(t, e.Resume(t.Context(), "b_"))
	testlease.EnterSoon(t, e)
	server.Query("orderly", "UPDATE orderly_namespaces SET last = last + 3600000000")
	rows := fmt.Sprintf("SELECT (SELECT count(*) FROM orderly_pauses) + count(*) FROM orderly_tickets WHERE number <= %d", testlease.EnterSoon(t, e))
	wait.Until(t, "rows are deleted", func() bool {
		testlease.EnterSoon(t, e)
		return server.Query("orderly", rows) == "0"
	})
}

// Bug: with such settings of a database, no request was answered.
func TestUnusualDatabase(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	server.Query("orderly", "CREATE DATABASE other ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	for _, setting := range []string{"standard_conforming_strings = off", "client_encoding = 'LATIN1'", "bytea_output = 'escape'"} {
		server.Query("orderly", "ALTER DATABASE other SET "+setting)
	}
	e := ready(t, strings.Replace(server.URL(), "/orderly?", "/other?", 1))
	testlease.Must(t, e.Pause(t.Context(), serializer.QueueName("größe_\\€"), time.Now().Add(time.Hour)))
	testlease.Must(t, ready(t, strings.Replace(server.URL(), "/orderly?", "/other?", 1)).Resume(t.Context(), serializer.QueueName("größe_\\€")))
	testlease.EnterSoon(t, e)
}

// Bug: of processes that started at the same moment on an empty database, some refused
// arrivals: the server had refused to make a table that another one was making.
func TestTablesMadeByMany(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	for i := range 6 {
		database := fmt.Sprintf("empty%d", i)
		server.Query("orderly", "CREATE DATABASE "+database)
		var starting sync.WaitGroup
		for range 8 {
			e := open(t, Options{URL: strings.Replace(server.URL(), "/orderly?", "/"+database+"?", 1)})
			starting.Go(func() {
				turn, err := e.Enter(t.Context(), testlease.Arrival(testlease.Queue, 0))
				if err != nil {
					t.Error(err)
					return
				}
				turn.Leave()
				testlease.Must(t, e.Close())
			})
		}
		starting.Wait()
	}
}

// Bug: a process without tickets kept all notifications of others in memory.
func TestIdleProcess(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	ready(t, server.URL())
	round := func() string {
		return server.Query("orderly", `SELECT query_start FROM pg_stat_activity WHERE query LIKE '%EXECUTE "read state"%' AND pid <> pg_backend_pid()`)
	}
	for range 5 {
		server.Query("orderly", "SELECT count(pg_notify(channel, repeat('1', 7000) || i)) FROM orderly_namespaces, generate_series(1, 3000) AS i")
		wait.Until(t, "all is sent", func() bool { return server.Query("orderly", "SELECT pg_notification_queue_usage()") == "0" })
		for range 2 {
			last := round()
			wait.Until(t, "there is another round", func() bool { return round() != last })
		}
	}
	wait.Until(t, "the process has forgotten most notifications", func() bool {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc < 70<<20
	})
}

// Bug: a process that ended asked the server to cancel what it had just begun. PgBouncer
// 1.18 could crash by that.
func TestCloseCancelsNothing(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	link := testrelay.Start(t, server.Addr)
	cancels, holds := 0, false
	link.Set(func() {
		link.Asked = func(request []byte) bool {
			if bytes.Contains(request, []byte("\x00\x00\x00\x10\x04\xd2\x16\x2e")) { // to cancel another one
				cancels++
			}
			if bytes.Contains(request, []byte(`EXECUTE "insert"`)) && holds {
				link.Deaf = true
			}
			return false
		}
	})
	e := open(t, Options{URL: urlOf(link.Addr), TTL: time.Minute})
	testlease.EnterSoon(t, e)
	link.Set(func() { holds = true }) // not before: the round of the removal may be under way
	e.Join(testlease.Arrival(testlease.Queue, 0), func(serializer.Turn, error) {})
	wait.Until(t, "a round is under way", func() bool {
		return server.Query("orderly", "SELECT count(*) FROM orderly_tickets WHERE NOT gone") == "1"
	})
	closed, begun := make(chan error), time.Now()
	go func() { closed <- e.Close() }()
	if wait.Poll(time.Second, func() (cancelled bool) { link.Set(func() { cancelled = cancels > 0 }); return cancelled }) {
		t.Error("a request to cancel was sent")
	}
	link.Hold(false)
	silent := time.Since(begun)
	if err := <-closed; err != nil && silent < 2*time.Second {
		t.Error(err) // otherwise, this machine was slow, and no answer came in time
	}
}

// Bug: who had seen a loss of history come to its end, up to being cut off, took the next loss for
// the same one. So it entered at once, while somebody was inside.
func TestSecondLoss(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	loses := func() {
		server.Query("orderly", "BEGIN; UPDATE orderly_namespaces SET history = ''; DELETE FROM orderly_sessions; COMMIT")
	}
	number := func() string { return server.Query("orderly", "SELECT last FROM orderly_namespaces") }
	links := []*testrelay.Relay{testrelay.Start(t, server.Addr), testrelay.Start(t, server.Addr)}
	first := ready(t, urlOf(links[0].Addr))
	loses()
	wait.Until(t, "the process waits for the end of all leases", func() bool {
		return server.Query("orderly", "SELECT count(*) FROM orderly_sessions WHERE id < 0") == "1"
	})
	before := number()
	wait.Until(t, "it knows that", func() bool { return number() != before })
	links[0].Part(true)
	holder := testlease.Enter(t, testlease.Ready(t, open(t, Options{URL: urlOf(links[1].Addr), TTL: 3 * shortTTL})))
	links[1].Part(true)
	loses()
	links[0].Cut()
	links[0].Part(false)
	testlease.EnterSoon(t, first)
	if len(holder.Revoked) == 0 {
		t.Error("two were inside")
	}
	holder.Turn.Leave()
}

// Bug: if the answer was lost, an eviction that was carried out failed as if there had been no such
// ticket.
func TestAnswersLost(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	link := testrelay.Start(t, server.Addr)
	owner, other := open(t, Options{URL: server.URL(), TTL: time.Minute}), open(t, Options{URL: urlOf(link.Addr), TTL: time.Minute})
	testlease.Enter(t, owner)
	testlease.Join(t, owner)
	number := server.Query("orderly", "SELECT max(number) FROM orderly_tickets")
	token, err := strconv.ParseUint(number, 10, 64)
	testlease.Must(t, err)
	testlease.Must(t, testlease.Second(other.Queues(t.Context()))) // it is connected
	link.Lose(`EXECUTE "ask"`)
	link.Set(func() { link.Mute = true })
	go func() { // the owner obeys before the request is repeated
		wait.Until(t, "the ticket is out", func() bool {
			return server.Query("orderly", "SELECT gone FROM orderly_tickets WHERE number = "+number) == "t"
		})
		link.Cut()
		link.Set(func() { link.Mute = false })
	}()
	testlease.Must(t, other.Evict(t.Context(), "a_", token))
}

// Bug: if only the table of pauses was missing, it was not made, and all arrivals were refused.
func TestOneTableMissing(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	testlease.Must(t, ready(t, server.URL()).Close())
	server.Query("orderly", "DROP TABLE orderly_pauses")
	testlease.EnterSoon(t, ready(t, server.URL()))
}

// Bug: the server refused "1m0s" as the time for which a connection may be idle. So no lease of a
// minute or more was renewed.
func TestLongestLease(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	for _, ttl := range []time.Duration{2 * time.Second, 90 * time.Second, time.Hour} {
		st, err := Open(Options{URL: server.URL(), TTL: ttl})
		testlease.Must(t, err)
		conn, _, err := st.connect(t.Context(), ttl)
		if err != nil {
			t.Errorf("a connection that renews a lease of %s: %v", ttl, err)
			continue
		}
		var idle string
		testlease.Must(t, conn.QueryRow(t.Context(), "SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout'").Scan(&idle))
		if idle != strconv.FormatInt(ttl.Milliseconds(), 10) {
			t.Errorf("it may be idle for %s ms; expected %s", idle, ttl)
		}
		discard(conn)
	}
}

// Bug: a process that stopped tried once to end its lease. If a lock, the end of its connection or
// of the statement was in the way, all others waited for the time to live.
func TestCloseTriesAgain(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	o := Options{URL: server.URL(), TTL: time.Minute}
	other := open(t, o)
	for what, fault := range map[string]string{
		"the lock takes too long":    "SELECT %s",
		"the statement is cancelled": "SELECT pg_cancel_backend(%s)",
		"the connection is ended":    "SELECT pg_terminate_backend(%s)",
	} {
		e := open(t, o)
		holder := testlease.Enter(t, e)
		next := testlease.Join(t, other)
		conn, err := pgx.Connect(t.Context(), server.URL())
		testlease.Must(t, err)
		testlease.Must(t, testlease.Second(conn.Exec(t.Context(), "BEGIN; LOCK orderly_tickets")))
		since := time.Now()
		go e.Close()
		holder.Turn.Leave() // the ticket cannot be taken out
		first := ""
		tries := func(more string) string {
			return server.Query("orderly", "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%DELETE FROM orderly_sessions WHERE id = %'"+more)
		}
		wait.Until(t, "the process tries to end its lease", func() bool { first = tries(""); return first != "" })
		server.Query("orderly", fmt.Sprintf(fault, first))
		wait.Until(t, "the first try has failed", func() bool { return tries(" AND pid = "+first) == "" })
		t.Log(what)
		testlease.Must(t, conn.Close(t.Context())) // ends the lock
		next.LeaveWithin(t, since, o.TTL/2)
	}
}
