package redis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The server answers, but refuses writes for a while. Arrivals are refused with the reason.
// A turn passes on only within its process. If that lasts, the leases run out, with the reason,
// too. Then all goes on by itself.
func TestServerRefusesWrites(t *testing.T) {
	for name, test := range map[string]struct {
		args       []string
		begin, end func(t *testing.T, s *server)
		want       string
	}{
		"snapshots fail": {
			[]string{"--save", "3600 1"},
			func(t *testing.T, s *server) {
				testlease.Must(t, os.MkdirAll(filepath.Join(s.dir, "dump.rdb", "in the way"), 0o700))
				s.save(t, "err")
			},
			func(t *testing.T, s *server) {
				testlease.Must(t, os.RemoveAll(filepath.Join(s.dir, "dump.rdb")))
				s.save(t, "ok")
			},
			"until it can save its data",
		},
		"too few replicas": {
			nil,
			func(_ *testing.T, s *server) { s.do("CONFIG", "SET", "min-replicas-to-write", "1") },
			func(_ *testing.T, s *server) { s.do("CONFIG", "SET", "min-replicas-to-write", "0") },
			"until min-replicas-to-write replicas follow it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, test.args...)
			o := Options{TTL: 10 * time.Second}
			engines := []*serializer.Engine{openAtOnce(t, s, o, s.address), openAtOnce(t, s, o, s.address)}
			holder, same, other := testlease.Enter(t, engines[0]), testlease.Join(t, engines[0]), testlease.Join(t, engines[1])
			test.begin(t, s)
			testlease.WantRefused(t, engines[1], test.want)
			holder.Turn.Leave()
			same.Wait(t)
			if err := same.WantRevoked(t, serializer.ErrLost); !strings.Contains(err.Error(), test.want) {
				t.Errorf("revoked with %v", err)
			}
			wait.Until(t, "the waiter is refused", other.Over)
			if other.Err == nil || !strings.Contains(other.Err.Error(), test.want) {
				t.Errorf("the waiter ends with %v", other.Err)
			}
			same.Turn.Leave()
			testlease.WantRefused(t, engines[0], test.want)
			test.end(t, s)
			passed := time.Now()
			token := testlease.EnterSoon(t, engines[1])
			t.Logf("the next one entered %.1f s after the end", time.Since(passed).Seconds())
			testlease.WantGreater(t, token, same.Turn.Token())
		})
	}
}

// save has the server make snapshots until one succeeds or fails.
func (s *server) save(t *testing.T, want string) {
	t.Helper()
	wait.Until(t, "a snapshot is "+want, func() bool {
		_ = s.try("BGSAVE").Err() // fails while one is being made
		return infoValue(s.do("INFO", "persistence").(string), "rdb_last_bgsave_status") == want
	})
}
