package redis

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/serializer"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

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
