package test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// restore kills etcd and starts it with the data of a snapshot. It does what etcdutl snapshot restore
// does, with --mark-compacted where that is needed.
func restore(t *testing.T, s *testetcd.Server, file, clusterToken string, bump uint64) {
	t.Helper()
	s.Kill()
	s.Dir += "-restored"
	testlease.Must(t, snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: s.Dir, RevisionBump: bump, MarkCompacted: bump > 0,
		Name: "m0", PeerURLs: []string{s.Peer}, InitialCluster: "m0=" + s.Peer, InitialClusterToken: clusterToken,
	}))
	s.Run()
	s.AwaitAnswer()
}

// A cluster that was restored from a snapshot numbers its keys from an earlier
// revision on. Bug: processes that kept running kept their leases, which the
// snapshot had, too, and what they knew of later revisions. So two were inside
// until the revisions had come as far again. If the revision is bumped, tokens
// keep growing.
func TestRestoredFromSnapshot(t *testing.T) {
	t.Parallel()
	const same, bumped = "etcd-cluster", 1_000_000_000
	for name, c := range map[string]struct {
		program, clusterToken string
		bump                  uint64
	}{
		"etcd 3.4, the same cluster ID": {testetcd.Debian, same, 0},
		"etcd 3.4, another cluster ID":  {testetcd.Debian, "restored", 0},
		"etcd 3.4, the revision bumped": {testetcd.Debian, same, bumped},
		"etcd 3.7":                      {testetcd.Own, same, 0},
		"etcd 3.7, the revision bumped": {testetcd.Own, same, bumped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testetcd.Start(t, c.program)
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
			if text, err := exec.Command("etcdctl", "--endpoints", s.URL, "snapshot", "save", file).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			turns(100)
			holder := testlease.Enter(t, here, arrival("held"))
			waiter := testlease.Join(t, there, arrival("held"))
			restore(t, s, file, c.clusterToken, c.bump)

			back, clients := time.Now(), testlease.Come("a_", 2, here, there)
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
			time.Sleep(time.Until(back.Add(4 * time.Second))) // clients come meanwhile
			clients.End()
			testlease.Must(t, clients.Judge())
			if first, _ := clients.First(); first == 0 || c.bump > 0 && first <= holder.Turn.Token() {
				t.Errorf("the first token is %d, after %d before the restore", first, holder.Turn.Token())
			}
		})
	}
}
