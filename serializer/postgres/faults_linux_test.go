package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// holder is the mark of a process that enters, and holds its turn until it is revoked.
const holder = "ORDERLY_TEST_HOLDER"

func TestMain(m *testing.M) {
	if url := os.Getenv(holder); url != "" {
		holdForever(url)
	}
	wait.InParallel()
	os.Exit(m.Run())
}

func holdForever(url string) {
	store, err := Open(Options{URL: url, TTL: shortTTL})
	if err != nil {
		panic(err)
	}
	revoked, a := make(chan error, 1), arrivalFor(0)
	a.Revoke = func(cause error) { revoked <- cause }
	if _, err := serializer.New(store, serializer.Options{}).Enter(context.Background(), a); err != nil {
		panic(err)
	}
	fmt.Println("inside")
	<-revoked
	fmt.Println("revoked")
	select {}
}

// A process with the turn dies, or is stopped for longer than its lease. The next one
// enters at most two seconds after the lease. The stopped one learns of it when it wakes.
func TestProcessStops(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testpostgres.Start(t)
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), holder+"="+server.URL())
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			lines := bufio.NewScanner(out)
			says := func(word string) {
				if !lines.Scan() || lines.Text() != word {
					t.Fatalf("the process says %q; expected %s", lines.Text(), word)
				}
			}
			says("inside")
			next, since := join(t, ready(t, server.URL())), time.Now()
			must(t, cmd.Process.Signal(sig))
			nextIn(t, next, since, shortTTL+2*time.Second)
			if sig == syscall.SIGSTOP {
				must(t, cmd.Process.Signal(syscall.SIGCONT))
				says("revoked")
			}
		})
	}
}

// A process with the turn is cut off. It gives up before the others go on, whatever happens
// to the server's clock. Bug: leases ended by that. When it was set forward, another one
// entered beside the holder. When it was set back, the tickets of the dead stayed.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for _, ahead := range []string{"0", "1 hour", "-1 hour"} {
		t.Run(ahead, func(t *testing.T) {
			t.Parallel()
			server := testpostgres.Start(t)
			makeSettable(server)
			link := startRelay(t, server.Addr)
			turn, revoked := held(t, ready(t, link.url()))
			next, since := join(t, ready(t, server.URL())), time.Now()
			link.Set(func() { link.Parted = true })
			server.Query("orderly", "UPDATE test.clock SET ahead = '"+ahead+"'")
			wantRevoked(t, revoked, serializer.ErrLost)
			if len(next) > 0 {
				t.Error("the next one has entered before the turn was revoked")
			}
			nextIn(t, next, since, shortTTL+2*time.Second)
			turn.Leave()
		})
	}
}

// A process's rounds cannot reach the server, but renewals can: its old connections still
// work, or short messages get through. It lets its lease end. Bug: it renewed it, so its
// ticket blocked all others, its arrivals waited, and an eviction never returned. Each try
// left one more connection open on the server.
func TestRoundsCutOff(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*relay){
		"new connections hang": func(r *relay) { r.Mute = true },
		"long messages vanish": func(r *relay) { r.Most = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testpostgres.Start(t)
			link, other := startRelay(t, server.Addr), ready(t, server.URL())
			e := ready(t, strings.Replace(link.url(), "?", "?application_name=cut_off&", 1))
			turn, _ := held(t, e)
			next, since := join(t, other), time.Now()
			backends := func(more string) string {
				return server.Query("orderly", "SELECT coalesce(string_agg(pid::text, ',' ORDER BY pid), '') FROM pg_stat_activity WHERE application_name = 'cut_off' AND "+more)
			}
			wait.Until(t, "the lease is renewed", func() bool { return backends("query LIKE '%renewals%'") != "" })
			link.Set(func() { fault(link) })
			server.Query("orderly", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut_off' AND query NOT LIKE '%renewals%'")
			turn.Leave()
			must(t, other.Evict(t.Context(), "a_", turn.Token()))
			nextIn(t, next, since, wait.Patience)
			wantRefused(t, e, "")
			open := backends("true")
			wait.Until(t, "the server ends the connections that are open", func() bool {
				return open == "" || backends("pid IN ("+open+")") == ""
			})
			link.Cut()
			link.Set(func() { link.Mute, link.Most = false, 0 })
			enterSoon(t, e)
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
	silent := startRelay(t, server.Addr)
	silent.Set(func() { silent.Mute = true })
	url := strings.Replace(server.URL(), "@", "@"+silent.Addr+",", 1)
	o := Options{URL: url + "&connect_timeout=4", TTL: 3 * shortTTL} // so that a busy machine loses no lease
	e := open(t, o)
	turn, revoked := held(t, e)
	renewals := func() string { return server.Query("orderly", "SELECT max(renewals) FROM orderly_sessions") }
	wait.Until(t, "the lease is renewed, or lost", func() bool { return renewals() > "1" || len(revoked) > 0 })
	if len(revoked) > 0 {
		t.Error(<-revoked)
	}
	turn.Leave()
}

// Bug: a process whose rounds took longer than its statement_timeout, and renewals did not, kept
// its lease for ever. It could not take its tickets out, so nobody else entered.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	e, other := ready(t, server.URL()+"&statement_timeout=500"), ready(t, server.URL())
	turn, _ := held(t, e)
	next, since := join(t, other), time.Now()
	server.Query("orderly", `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END';
		CREATE TRIGGER slow AFTER UPDATE ON orderly_tickets WHEN (current_setting('statement_timeout') <> '0') EXECUTE FUNCTION slow()`)
	turn.Leave()
	nextIn(t, next, since, wait.Patience)
}

// A server that is silent for longer than the lease costs it. One that restarts does not,
// even if others' commits need not reach its disk. Nor does a lock on the tickets that lasts
// longer: it does not stop the renewals.
func TestServerStops(t *testing.T) {
	t.Parallel()
	const longer = 3 * shortTTL // so that a busy machine loses none of the leases
	for name, test := range map[string]struct {
		ttl   time.Duration
		fault func(*testpostgres.Server)
		lost  bool
	}{
		"frozen": {shortTTL, func(s *testpostgres.Server) {
			s.Freeze()
			time.Sleep(shortTTL + time.Second)
			s.Thaw()
		}, true},
		"restarted": {time.Minute, func(s *testpostgres.Server) { s.Stop(); s.Run() }, false},
		"killed":    {time.Minute, func(s *testpostgres.Server) { s.Kill(); s.Run() }, false},
		"locked": {longer, func(s *testpostgres.Server) {
			s.Query("orderly", fmt.Sprintf("BEGIN; LOCK orderly_tickets; SELECT pg_sleep(%f); COMMIT", longer.Seconds()+1))
			s.Query("orderly", "VACUUM FULL orderly_tickets")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testpostgres.Start(t, "synchronous_commit=off")
			o := Options{URL: server.URL(), TTL: test.ttl}
			first, second := open(t, o), open(t, o)
			turn, revoked := held(t, first)
			next := join(t, second)
			test.fault(server)
			since := time.Now()
			if test.lost {
				wantRevoked(t, revoked, serializer.ErrLost)
				turn.Leave()
				enterSoon(t, second)
				t.Logf("entered after %s", time.Since(since).Round(100*time.Millisecond))
				return
			}
			turn.Leave()
			nextIn(t, next, since, wait.Patience)
			if len(revoked) > 0 || first.lost.Load()+second.lost.Load() > 0 {
				t.Error("a lease is lost")
			}
		})
	}
}

// A standby is promoted that has not got everything. Nobody enters until all leases have
// ended that the old primary granted, and tokens keep growing. Bugs: they did not if the new
// clock was behind, or if the old one had been ahead when the commits were made that are lost.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := testpostgres.Start(t)
	makeSettable(primary)
	standby := primary.Standby(testpostgres.Dir(t))
	links := []*relay{startRelay(t, primary.Addr), startRelay(t, primary.Addr)}
	first, other := ready(t, links[0].url()), ready(t, links[1].url())
	enterSoon(t, other)
	wait.Until(t, "the standby follows", func() bool {
		out, err := standby.TryQuery("orderly", "SELECT count(*) FROM orderly_sessions")
		return err == nil && out == "2"
	})
	standby.Stop()
	primary.Query("orderly", "UPDATE test.clock SET ahead = '1 hour'")
	turn, revoked := held(t, first)            // the standby will not know this
	must(t, second(other.Queues(t.Context()))) // so it has seen the number
	primary.Kill()
	standby.Run()
	standby.Promote()
	standby.Query("orderly", "UPDATE test.clock SET ahead = '-1 hour'")
	since := time.Now()
	links[1].Set(func() { links[1].To = standby.Addr })
	for _, link := range links {
		link.Cut()
	}
	token := enterSoon(t, other)
	if took := time.Since(since); took < shortTTL || len(revoked) == 0 {
		t.Errorf("entered after %s, revoked %d", took, len(revoked))
	}
	t.Logf("entered after %s", time.Since(since).Round(100*time.Millisecond))
	wantRevoked(t, revoked, serializer.ErrLost)
	if token <= turn.Token() {
		t.Errorf("token %d after %d", token, turn.Token())
	}
	turn.Leave()
}

// The answer to a commit is lost, with the connection: the ticket was taken. It is found,
// and no other one is left.
func TestCommitUnknown(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t, "synchronous_commit=on")
	link := startRelay(t, server.Addr)
	e := open(t, Options{URL: link.url(), TTL: time.Minute}) // no renewal waits, which would lock the session's row
	enterSoon(t, e)
	tickets := func() string {
		return server.Query("orderly", "SELECT count(*) FROM orderly_tickets WHERE NOT gone")
	}
	for name, lose := range map[string]func(){
		"answer lost": func() { link.Set(func() { link.Loses = `EXECUTE "insert"` }) },
		"ended in the middle of the commit": func() {
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
		},
	} {
		lose()
		turn, err := e.Enter(t.Context(), arrivalFor(wait.Patience))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n := tickets(); n != "1" {
			t.Errorf("%s: %s tickets", name, n)
		}
		turn.Leave()
		wait.Until(t, "no ticket is left", func() bool { return tickets() == "0" })
	}
	// Its caller gives up while the answer is lost: the ticket is withdrawn.
	link.Set(func() { link.Loses = `EXECUTE "insert"` })
	if _, err := e.Enter(t.Context(), arrivalFor(time.Millisecond)); err == nil {
		t.Log("entered after all")
	}
	enterSoon(t, e)
	wait.Until(t, "no ticket is left", func() bool { return tickets() == "0" })
	if e.lost.Load() > 0 {
		t.Error("the lease is lost")
	}
}

// The server can be reached, but not written to. Arrivals are refused, and the log says why.
// When it can be written to, all goes on.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	e := ready(t, server.URL())
	set := func(on string) {
		server.Query("orderly", "ALTER SYSTEM SET default_transaction_read_only = "+on)
		server.Query("orderly", "SELECT pg_reload_conf()")
	}
	enterSoon(t, e)
	set("on")
	wantRefused(t, e, "read")
	set("off")
	enterSoon(t, e)
}

// The server's disk is full. Arrivals are refused. When there is room, all goes on, and
// nothing is left of those that were refused.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can make a small disk")
		return
	}
	t.Parallel()
	dir := testpostgres.Dir(t)
	must(t, unix.Mount("none", dir, "tmpfs", 0, "mode=0777,size=400m"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	server := testpostgres.StartIn(t, dir)
	e := ready(t, server.URL())
	enterSoon(t, e)
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	must(t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = ballast.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	turn, _ := held(t, e)
	var refused atomic.Int64
	for i := 0; i < 20000 && refused.Load() == 0; i++ {
		e.Join(arrivalFor(time.Minute), func(turn serializer.Turn, err error) {
			if err == nil {
				turn.Leave()
			} else if serializer.ReasonOf(err) == serializer.ReasonStorage && refused.Add(1) == 1 {
				t.Log(err)
			}
		})
		time.Sleep(100 * time.Microsecond)
	}
	wait.Until(t, "arrivals are refused", func() bool { return refused.Load() > 0 })
	must(t, ballast.Truncate(0))
	ballast.Close()
	since := time.Now()
	if _, err := server.TryQuery("orderly", "SELECT 1"); err != nil {
		t.Log("the server has ended, because it could not write its log")
		server.Stop()
		server.Run()
	}
	turn.Leave()
	enterSoon(t, e)
	t.Logf("entered after %s", time.Since(since).Round(100*time.Millisecond))
	wait.Until(t, "no ticket is left", func() bool {
		return server.Query("orderly", "SELECT count(*) FROM orderly_tickets WHERE NOT gone") == "0"
	})
}

// Without the right to make tables, the error has the SQL. With tables, but without the
// right to write to them, it names the table.
func TestRights(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	server.Query("orderly", "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE app LOGIN")
	e := open(t, Options{URL: strings.Replace(server.URL(), "orderly@", "app@", 1)})
	wantRefused(t, e, "CREATE TABLE IF NOT EXISTS orderly_tickets")
	server.Query("orderly", schema)
	wantRefused(t, e, "permission denied for table")
	server.Query("orderly", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app")
	enterSoon(t, e)
	// A process that may not take its tickets out lets its lease expire.
	turn, _ := held(t, e)
	next, since := join(t, ready(t, server.URL())), time.Now()
	server.Query("orderly", "REVOKE UPDATE ON orderly_tickets FROM app")
	turn.Leave()
	nextIn(t, next, since, shortTTL+2*time.Second)
}

// A proxy cuts connections again and again, and the server ends idle ones.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t, "idle_session_timeout=700ms")
	link := startRelay(t, server.Addr)
	o := Options{URL: link.url(), TTL: 3 * shortTTL} // so that a busy machine loses no lease
	first, second := open(t, o), open(t, o)
	turn, revoked := held(t, first)
	next := join(t, second)
	for end := time.Now().Add(o.TTL + time.Second); time.Now().Before(end); {
		time.Sleep(time.Second)
		link.Cut()
	}
	turn.Leave()
	nextIn(t, next, time.Now(), wait.Patience)
	if len(revoked) > 0 || first.lost.Load()+second.lost.Load() > 0 {
		t.Error("a lease is lost")
	}
}

// After the password has changed, connections that are open go on. New ones are refused
// with a message that says so.
func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	hba := filepath.Join(server.Data, "pg_hba.conf")
	must(t, os.WriteFile(hba, []byte("host all app all scram-sha-256\nhost all all all trust\n"), 0)) //nolint:dupword // columns
	server.Query("orderly", "SELECT pg_reload_conf()")
	server.Query("orderly", "CREATE ROLE app SUPERUSER LOGIN PASSWORD 'secret'")
	link := startRelay(t, server.Addr)
	e := ready(t, strings.Replace(link.url(), "orderly@", "app:secret@", 1))
	server.Query("orderly", "ALTER ROLE app PASSWORD 'other'")
	enterSoon(t, e)
	link.Cut()
	wantRefused(t, e, "password authentication failed")
	server.Query("orderly", "ALTER ROLE app PASSWORD 'secret'")
	enterSoon(t, e)
}

// An operator deletes rows. Waiters are refused, holders are notified, and the queue goes on. If the
// history itself is gone, it goes on in processes that start anew.
func TestOperatorDeletes(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"DELETE FROM orderly_tickets",
		"UPDATE orderly_tickets SET gone = true",
		"DELETE FROM orderly_sessions",
		"DELETE FROM orderly_namespaces",
		"DROP TABLE orderly_namespaces, orderly_sessions, orderly_tickets, orderly_pauses",
	} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			server := testpostgres.Start(t)
			e, other := ready(t, server.URL()), ready(t, server.URL())
			turn, revoked := held(t, e)
			join(t, other)
			server.Query("orderly", sql)
			wantRevoked(t, revoked, serializer.ErrLost)
			turn.Leave()
			if strings.Contains(sql, "namespaces") {
				wantRefused(t, other, "restart all Caddys")
				must(t, other.Close())
				other = ready(t, server.URL())
			}
			enterSoon(t, other)
		})
	}
}

// A process that was slow for some time finds that rows were deleted that it has not seen:
// it reads everything.
func TestSlowProcess(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t)
	link := startRelay(t, server.Addr)
	turn, _ := held(t, ready(t, server.URL()))
	next := join(t, ready(t, link.url()))
	link.Set(func() { link.Parted = true })
	turn.Leave()
	wait.Until(t, "the ticket is out", func() bool {
		return server.Query("orderly", "DELETE FROM orderly_tickets WHERE gone RETURNING 1") == "1"
	})
	server.Query("orderly", "UPDATE orderly_namespaces SET trimmed = last")
	link.Set(func() { link.Parted = false })
	nextIn(t, next, time.Now(), wait.Patience)
}

// Many wait, of two processes. All get their turns, in order.
func TestCrowd(t *testing.T) {
	t.Parallel()
	n := 1000
	if *long {
		n = 10000
	}
	server := testpostgres.Start(t)
	engines := []*engine{ready(t, server.URL()), ready(t, server.URL())}
	turn, _ := held(t, engines[0])
	var last, inversions, over atomic.Uint64
	start := time.Now()
	for i := range n {
		a := arrivalFor(0)
		engines[i%2].Join(a, func(turn serializer.Turn, err error) {
			defer over.Add(1)
			if err != nil {
				t.Error(err)
				return
			}
			if last.Swap(turn.Token()) > turn.Token() {
				inversions.Add(1)
			}
			turn.Leave()
		})
	}
	wait.Until(t, "all wait", func() bool {
		_, first := engines[0].Count("a_")
		_, second := engines[1].Count("a_")
		return first+second == n
	})
	joined := time.Since(start)
	turn.Leave()
	wait.Until(t, "all had their turns", func() bool { return over.Load() == uint64(n) })
	t.Logf("%d have joined in %s, and had their turns in another %s", n, joined, time.Since(start)-joined)
	if inversions.Load() > 0 {
		t.Errorf("%d inversions", inversions.Load())
	}
}

// Bug: renewals were not on the disk of a server with synchronous_commit=off. After a crash,
// the lease of a holder had ended for the others, and not for itself.
func TestRenewalsAreDurable(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t, "synchronous_commit=off", "wal_writer_delay=10s")
	link := startRelay(t, server.Addr)
	enterSoon(t, open(t, Options{URL: link.url(), TTL: 4 * time.Second}))
	renewals := func() string { return server.Query("orderly", "SELECT max(renewals) FROM orderly_sessions") }
	begun := renewals()
	wait.Until(t, "the lease is renewed", func() bool { return renewals() != begun })
	link.Set(func() { link.Parted = true })
	renewed := renewals()
	server.Kill()
	server.Run()
	if after := renewals(); after != renewed {
		t.Errorf("the lease was renewed %s times before a crash, and %s times afterwards", renewed, after)
	}
}
