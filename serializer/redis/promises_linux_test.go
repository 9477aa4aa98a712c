package redis

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testrelay"

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
