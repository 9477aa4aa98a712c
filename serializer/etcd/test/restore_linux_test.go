package test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// restorable is a member whose data can be saved and restored.
type restorable struct {
	*testetcd.Member
	save    func() (file string)
	restore func(file string)
}

// restorableDebian is restored with its own etcdctl, or with etcdutl if bump is not
// 0.
func restorableDebian(t *testing.T, clusterToken string, bump uint64) restorable {
	s := startStandalone(t)
	restore := func(file string) { s.restore(t, file, clusterToken) }
	if bump > 0 {
		restore = func(file string) {
			s.process.kill()
			s.member.dir += "-restored"
			s.process.args[slices.Index(s.process.args, "--data-dir")+1] = s.member.dir
			restoreSnapshot(t, snapshot.RestoreConfig{
				SnapshotPath: file, OutputDataDir: s.member.dir, RevisionBump: bump,
				Name: s.member.name, PeerURLs: []string{s.member.peer}, InitialCluster: s.member.cluster, InitialClusterToken: clusterToken,
			})
			s.process.start(t)
			s.waitReady(t)
		}
	}
	return restorable{s.Member, func() string { return s.snapshot(t) }, restore}
}

// restorableModern is restored with etcdutl.
func restorableModern(t *testing.T, bump uint64) restorable {
	m := testetcd.Start(t)
	return restorable{m, func() string { return saveSnapshot(t, m) }, func(file string) {
		m.Stop()
		m.Config.Dir += "-restored"
		restoreSnapshot(t, snapshot.RestoreConfig{
			SnapshotPath: file, OutputDataDir: m.Config.Dir, RevisionBump: bump,
			Name: m.Config.Name, PeerURLs: []string{m.Config.AdvertisePeerUrls[0].String()},
			InitialCluster: m.Config.InitialCluster, InitialClusterToken: m.Config.InitialClusterToken,
		})
		m.Start(t)
	}}
}

// restoreSnapshot does what etcdutl snapshot restore does, with --mark-compacted
// where that is needed.
func restoreSnapshot(t *testing.T, c snapshot.RestoreConfig) {
	t.Helper()
	c.MarkCompacted = c.RevisionBump > 0
	if err := snapshot.NewV3(zap.NewNop()).Restore(c); err != nil {
		t.Fatal(err)
	}
}

// saveSnapshot does what etcdctl snapshot save does.
func saveSnapshot(t *testing.T, m *testetcd.Member) (file string) {
	t.Helper()
	content, err := m.Client(t).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	file = filepath.Join(t.TempDir(), "snapshot.db")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, content)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// A cluster that was restored from a snapshot numbers its keys from an earlier
// revision on. Bug: processes that kept running kept their leases, which the
// snapshot had, too, and what they knew of later revisions. So two were inside
// until the revisions had come as far again. If the revision is bumped, tokens
// keep growing.
func TestRestoredFromSnapshot(t *testing.T) {
	const bump = 1_000_000_000
	for name, c := range map[string]struct {
		start func(*testing.T) restorable
		grows bool // the tokens
	}{
		"etcd 3.4, the same cluster ID": {func(t *testing.T) restorable { return restorableDebian(t, "etcd-cluster", 0) }, false},
		"etcd 3.4, another cluster ID":  {func(t *testing.T) restorable { return restorableDebian(t, "restored", 0) }, false},
		"etcd 3.4, the revision bumped": {func(t *testing.T) restorable { return restorableDebian(t, "etcd-cluster", bump) }, true},
		"etcd 3.7":                      {func(t *testing.T) restorable { return restorableModern(t, 0) }, false},
		"etcd 3.7, the revision bumped": {func(t *testing.T) restorable { return restorableModern(t, bump) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			testRestored(t, c.start(t), c.grows)
		})
	}
}

func testRestored(t *testing.T, m restorable, grows bool) {
	const ttl = 20 * time.Second
	engines := []*engine{open(t, etcd.Options{TTL: ttl}, m.URL), open(t, etcd.Options{TTL: ttl}, m.URL)}
	turns := func(n int) {
		for _, e := range engines {
			for range n {
				enter(t, e, arrival("q")).Leave()
			}
		}
	}
	turns(1)
	waitUntilEmpty(t, m.Client(t))
	file := m.save()
	turns(100)
	revoked := make(chan error, 1)
	a := arrival("held")
	a.Revoke = func(err error) { revoked <- err }
	holder := enter(t, engines[0], a)
	waiter := join(t, engines[1], arrival("held"))
	m.restore(file)
	back := time.Now()

	var inside, overlaps, entered, older atomic.Int64
	var group sync.WaitGroup
	end := time.Now().Add(4 * time.Second)
	for _, e := range engines {
		for range 2 {
			group.Go(func() {
				for time.Now().Before(end) {
					turn, err := e.Enter(context.Background(), arrival("q"))
					if err != nil {
						time.Sleep(50 * time.Millisecond)
						continue
					}
					if inside.Add(1) > 1 {
						overlaps.Add(1)
					}
					if turn.Token() <= holder.Token() {
						older.Add(1)
					}
					entered.Add(1)
					time.Sleep(100 * time.Millisecond)
					inside.Add(-1)
					turn.Leave()
				}
			})
		}
	}
	select {
	case err := <-revoked:
		t.Logf("the request inside was cancelled %s after etcd was back", time.Since(back).Round(time.Millisecond))
		if !errors.Is(err, serializer.ErrLost) {
			t.Errorf("revoked with %v", err)
		}
	case <-time.After(ttl / 2):
		t.Error("a holder whose ticket the restored cluster does not have is still inside")
	}
	if r := <-waiter; !errors.Is(r.err, serializer.ErrLost) && !errors.Is(r.err, serializer.ErrEvicted) {
		t.Errorf("a waiter whose ticket the restored cluster does not have got %v", r.err)
	} else {
		t.Logf("the waiter got: %v", r.err)
	}
	holder.Leave()
	group.Wait()
	if overlaps.Load() > 0 || entered.Load() < 5 {
		t.Errorf("%d entered, %d while another was inside", entered.Load(), overlaps.Load())
	}
	if n := older.Load(); grows && n > 0 {
		t.Errorf("%d of %d had a token from before the restore", n, entered.Load())
	}
}
