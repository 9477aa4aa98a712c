package test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

// restore kills etcd and starts it with the data of a snapshot. It does what etcdutl
// snapshot restore does, with --mark-compacted where that is needed, or what etcdctl of
// etcd 3.4 does.
func (s *standalone) restore(t *testing.T, file, clusterToken string, bump uint64) {
	t.Helper()
	s.process.kill()
	before := s.member.dir
	s.member.dir += "-restored"
	s.process.args[slices.Index(s.process.args, before)] = s.member.dir
	if s.process.program == "etcd" && bump == 0 {
		run(t, "etcdctl", "snapshot", "restore", file, "--name", s.member.name, "--data-dir", s.member.dir,
			"--initial-cluster", s.member.cluster, "--initial-advertise-peer-urls", s.member.peer, "--initial-cluster-token", clusterToken)
	} else {
		testlease.Must(t, snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, OutputDataDir: s.member.dir, RevisionBump: bump, MarkCompacted: bump > 0,
			Name: s.member.name, PeerURLs: []string{s.member.peer}, InitialCluster: s.member.cluster, InitialClusterToken: clusterToken,
		}))

	}
	s.process.start(t)
	s.waitReady(t)
}

// A cluster that was restored from a snapshot numbers its keys from an earlier
// revision on. Bug: processes that kept running kept their leases, which the
// snapshot had, too, and what they knew of later revisions. So two were inside
// until the revisions had come as far again. If the revision is bumped, tokens
// keep growing.
func TestRestoredFromSnapshot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program, clusterToken string
		bump                  uint64
	}{
		"etcd 3.4, the same cluster ID": {"etcd", "etcd-cluster", 0},
		"etcd 3.4, another cluster ID":  {"etcd", "restored", 0},
		"etcd 3.4, the revision bumped": {"etcd", "etcd-cluster", 1_000_000_000},
		"etcd 3.7":                      {"modern", "etcd-cluster", 0},
		"etcd 3.7, the revision bumped": {"modern", "etcd-cluster", 1_000_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStandalone(t, c.program)
			testRestored(t, s, c.bump > 0, func(file string) { s.restore(t, file, c.clusterToken, c.bump) })
		})
	}
}

func testRestored(t *testing.T, s *standalone, grows bool, restore func(file string)) {
	options := etcd.Options{TTL: 20 * time.Second}
	here, there := open(t, options, s.URL), open(t, options, s.URL)
	turns := func(n int) {
		for range n {
			testlease.Enter(t, here).Turn.Leave()
			testlease.Enter(t, there).Turn.Leave()
		}
	}
	turns(1)
	waitUntilEmpty(t, s.Client(t))
	file := filepath.Join(t.TempDir(), "snapshot.db")
	run(t, "etcdctl", "--endpoints", s.URL, "snapshot", "save", file)
	turns(100)
	holder := testlease.EnterAs(t, here, arrival("held"))
	waiter := testlease.JoinAs(t, there, arrival("held"))
	restore(file)

	back := time.Now()
	var all crowd
	all.comes(here, 2, 0, 100*time.Millisecond, 10*time.Millisecond)
	all.comes(there, 2, 0, 100*time.Millisecond, 10*time.Millisecond)
	holder.WantRevoked(t, serializer.ErrLost)
	took := time.Since(back)
	t.Logf("the request inside was cancelled %s after etcd was back", took.Round(time.Millisecond))
	if took > options.TTL/2 {
		t.Error("that is too long: the restored cluster does not have its ticket")
	}
	if err := waiter.End(t); !errors.Is(err, serializer.ErrLost) && !errors.Is(err, serializer.ErrEvicted) {
		t.Errorf("a waiter whose ticket the restored cluster does not have got %v", err)
	}
	holder.Turn.Leave()
	time.Sleep(time.Until(back.Add(4 * time.Second))) // visitors come meanwhile
	all.end()
	if all.overlaps > 0 || len(all.entries) < 5 {
		t.Errorf("%d entered, %d while another was inside", len(all.entries), all.overlaps)
	}
	older := func(e entry) bool { return e.token <= holder.Turn.Token() }
	if grows && slices.ContainsFunc(all.entries, older) {
		t.Error("somebody had a token from before the restore")
	}
}
