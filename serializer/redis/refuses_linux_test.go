package redis

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	type refusal struct {
		args       []string
		begin, end func(t *testing.T, s *server)
		want       string
	}
	refusals := map[string]refusal{
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
	}
	if os.Geteuid() == 0 { // only root can make a small disk
		disk := smallDisk(t)
		ballast := filepath.Join(disk, "ballast")
		refusals["the disk is full"] = refusal{
			[]string{"--appendonly", "yes", "--dir", disk},
			func(t *testing.T, s *server) {
				fill(t, ballast)
				wait.Until(t, "changes cannot be saved", func() bool {
					_ = s.try("SET", "x", strings.Repeat("x", 10<<10)).Err()
					return infoValue(s.do("INFO", "persistence").(string), "aof_last_write_status") == "err"
				})
			},
			func(t *testing.T, _ *server) { testlease.Must(t, os.Remove(ballast)) },
			"until it can save its data",
		}
	}
	for name, test := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, test.args...)
			engines := []*testlease.Engine{open(t, Options{TTL: 10 * time.Second}, s.address), open(t, Options{TTL: 10 * time.Second}, s.address)}
			for _, e := range engines {
				testlease.Must(t, queues(e))
			}
			s.do("HSET", "{orderly}:meta", "closed", 0) // rather than wait
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

// smallDisk is a directory on a disk of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testlease.Must(t, syscall.Mount("none", dir, "tmpfs", 0, "mode=0700,size=8m"))
	t.Cleanup(func() { testlease.Must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// fill writes a file until its disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	testlease.Must(t, err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
