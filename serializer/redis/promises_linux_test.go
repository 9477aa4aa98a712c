package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

func TestMain(m *testing.M) { testlease.Main(m, openAt) }

func openAt(address string, ttl time.Duration) (serializer.Store, error) {
	return Open(Options{Addresses: []string{address}, TTL: ttl})
}

// saving are the settings of a server that saves all that it acknowledges.
var saving = []string{"--appendonly", "yes", "--appendfsync", "always"}

// setClock sets the server's clock forward by an hour: what the script remembers is set back instead.
func setClock(s *server) {
	s.do("HINCRBY", "{orderly}:meta", "time", -int64(time.Hour/time.Microsecond))
}

func TestPromises(t *testing.T) {
	deletes := func(command ...any) testlease.Loss[*server] {
		return testlease.Loss[*server]{Do: func(s *server) { s.do(command...) }}
	}
	// The user cannot run the script, or it fails in its middle.
	withoutRight := func(right string) testlease.Right[*server] {
		return testlease.Right[*server]{
			Prepare: func(s *server) { s.do("ACL", "SETUSER", "u", "on", ">secret", "~*", "&*", "+@all") },
			Open: func(address string, ttl time.Duration) (serializer.Store, error) {
				return Open(Options{Addresses: []string{address}, TTL: ttl, Username: "u", Password: "secret"})
			},
			Lose: func(s *server) { s.do("ACL", "SETUSER", "u", "-"+right) }, Back: func(s *server) { s.do("ACL", "SETUSER", "u", "+"+right) },
			Says: "lacks a right", Revokes: true,
		}
	}
	// A server that has run beside the other one.
	elsewhere := func(used bool, found string) testlease.Elsewhere[*server] {
		return testlease.Elsewhere[*server]{Found: "has " + found, Prepare: func(t *testing.T, s *server, link *testrelay.Relay) (move, back func()) {
			other := startServer(t)
			if used {
				testlease.EnterSoon(t, open(t, Options{}, other.address))
			}
			return func() { link.Lead(other.address) }, func() { link.Lead(s.address) }
		}}
	}
	testlease.Promises[*server]{
		TTL: ttl, Start: startServer, Open: openAt, Saving: saving,
		Kept: map[string]testlease.Fault[*server]{
			"connections cut": {Do: func(_ *testing.T, _ *server, links []*testrelay.Relay) {
				for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
					links[0].Cut()
					links[1].Cut()
				}
			}},
			"clock set": {Do: func(_ *testing.T, s *server, _ []*testrelay.Relay) {
				for range 2 {
					setClock(s)
					time.Sleep(2 * pollInterval)
				}
			}},
		},
		Lost: map[string]testlease.Loss[*server]{
			"all":      deletes("FLUSHALL"),
			"tickets":  deletes("DEL", "{orderly}:tickets"),
			"sessions": deletes("DEL", "{orderly}:sessions"),
			"log":      deletes("DEL", "{orderly}:log"),
			"meta":     deletes("DEL", "{orderly}:meta"),
			"restart":  {Do: func(s *server) { s.Kill(); s.Run() }}, // of a server that keeps no data
		},
		Rights: map[string]testlease.Right[*server]{"evalsha": withoutRight("evalsha"), "hset": withoutRight("hset")},
		Clocks: map[string]func(*server){"forward": setClock},
		Elsewhere: map[string]testlease.Elsewhere[*server]{
			"an empty server": elsewhere(false, "no keys of Orderly"), "a server of others": elsewhere(true, "keys of others"),
		},
	}.Run(t)
}

// Ten thousand wait.
func TestCrowd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	testlease.Crowd(t, func() *serializer.Engine { return openAtOnce(t, s, Options{TTL: time.Minute}, s.address) }, s.Tickets, 10000)
}

// Bug: when a pause began, each holder was marked in a request of its own. With many and a slow
// link, they kept the renewal from a connection, and the lease was lost.
func TestPauseWithManyInside(t *testing.T) {
	t.Parallel()
	const n = 400
	s := startServer(t)
	engines := opened(t, 2, s.address)
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			_, err := engines[0].Enter(context.Background(), serializer.Arrival{Queue: "a_", Rule: serializer.Rule{Limit: n}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	before := calls(t, s)
	testlease.Must(t, engines[1].Pause(context.Background(), "a_", serializer.Forever))
	wait.Until(t, "all are marked", func() bool {
		values := fmt.Sprint(s.do("HVALS", "{orderly}:tickets"))
		return strings.Count(values, " i ") == n
	})
	if requests := calls(t, s) - before; requests > n/2 {
		t.Errorf("%d requests", requests)
	}
}

// Bug: with slow answers, lists kept the renewal from a connection, and the lease was lost: nothing
// bounded them.
func TestManyLists(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	link := testrelay.Start(t, s.address)
	slow, fast := opened(t, 1, link.Addr)[0], opened(t, 1, s.address)[0]
	holder := testlease.Enter(t, slow)
	link.Slow(200 * time.Millisecond)
	end := time.Now().Add(2 * ttl)
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			for time.Now().Before(end) {
				_ = queues(slow) // fails once the lease is lost
			}
		})
	}
	for waiting := 1; len(holder.Revoked) == 0 && time.Now().Before(end); waiting++ {
		testlease.Join(t, fast)
		list, _ := slow.Queues(t.Context())
		for _, q := range list {
			if q.Waiting < waiting {
				t.Errorf("a list has %d that wait; expected %d", q.Waiting, waiting)
			}
		}
	}
	group.Wait()
	holder.WantHeld(t)
}

// calls counts the scripts that the server has run.
func calls(t *testing.T, s *server) (n int) {
	t.Helper()
	info, _ := s.do("INFO", "commandstats").(string)
	_, err := fmt.Sscanf(infoValue(info, "cmdstat_evalsha"), "calls=%d", &n)
	testlease.Must(t, err)
	return n
}

func BenchmarkHandOver(b *testing.B) {
	s := startServer(b, "--appendonly", "yes")
	testlease.HandOver(b, func() *serializer.Engine { return opened(b, 1, s.address)[0] })
}

// historyFaults are what happens to a server that saves everything, and to the links to it.
func historyFaults(t *testing.T, s, other *server, links [][]*testrelay.Relay) map[string]func() {
	data := filepath.Join(s.dir, "appendonlydir")
	atMost := func(d time.Duration) { time.Sleep(time.Duration(rand.IntN(int(d)))) }
	return map[string]func(){
		"server restarted": func() {
			s.Kill()
			atMost(2 * ttl)
			s.Run()
		},
		"server restarted without data": func() {
			s.Kill()
			testlease.Must(t, os.RemoveAll(data))
			s.Run()
		},
		"server replaced by one that lacks the last second": func() {
			older := filepath.Join(t.TempDir(), "data")
			testlease.Must(t, os.CopyFS(older, os.DirFS(data)))
			time.Sleep(time.Second)
			s.Kill()
			testlease.Must(t, os.RemoveAll(data))
			testlease.Must(t, os.CopyFS(data, os.DirFS(older)))
			s.Run()
		},
		"server was a replica of one that lacks the last second": func() {
			older := startServer(t)
			defer older.Kill()
			follow(t, older, s)
			older.do("REPLICAOF", "NO", "ONE")
			time.Sleep(time.Second)
			follow(t, s, older)
			s.do("REPLICAOF", "NO", "ONE")
		},
		"server refuses writes": func() {
			s.do("CONFIG", "SET", "min-replicas-to-write", "1")
			atMost(2 * ttl)
			s.do("CONFIG", "SET", "min-replicas-to-write", "0")
		},
		"server frozen": func() {
			s.Freeze()
			atMost(2 * ttl)
			s.Thaw()
		},
		"a process led to an empty server": func() {
			link := links[rand.IntN(len(links))][0]
			link.Lead(other.address)
			time.Sleep(2*ttl + time.Second)
			link.Lead(s.address)
		},
		"server's clock set": func() { setClock(s) },
	}
}

func TestHistories(t *testing.T) {
	t.Parallel()
	s, other := startServer(t, saving...), startServer(t)
	var links [][]*testrelay.Relay
	var engines []*serializer.Engine
	for range 3 {
		link := testrelay.Start(t, s.address)
		links, engines = append(links, []*testrelay.Relay{link}), append(engines, testlease.Ready(t, open(t, Options{}, link.Addr))) // some faults need a known history
	}
	// A process takes one that has started since its last answer, by whole seconds, for the old one.
	wait.Until(t, "the other server has run before", func() bool {
		info, _ := other.do("INFO", "server").(string)
		seconds, _ := strconv.Atoi(infoValue(info, "uptime_in_seconds"))
		return seconds > 1
	})
	testlease.Histories{
		TTL: ttl, Engines: engines, Links: links,
		Faults: func() map[string]func() { return historyFaults(t, s, other, links) },
		Rest: func() {
			time.Sleep(ttl + time.Duration(rand.IntN(int(ttl))))
			awaitTurnover(t, s)
		},
	}.Run(t)
}

// awaitTurnover waits until no ticket is left of those that exist now. Nobody stays inside.
func awaitTurnover(t *testing.T, s *server) {
	t.Helper()
	tickets := s.do("HKEYS", "{orderly}:tickets").([]any)
	wait.Until(t, "no earlier ticket is left", func() bool {
		return !slices.ContainsFunc(tickets, func(ticket any) bool { return s.do("HEXISTS", "{orderly}:tickets", ticket) == int64(1) })
	})
}
