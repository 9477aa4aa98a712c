package test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// operator is somebody with all rights, on a cluster that demands a login.
type operator struct {
	t         testing.TB
	endpoints []string
}

// change is what an operator does to the cluster.
type change func(context.Context, *clientv3.Client) error

func (o *operator) do(c change) {
	o.t.Helper()
	if err := o.try(c); err != nil {
		o.t.Fatal(err)
	}
}

func (o *operator) try(change change) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: o.endpoints, Username: "root", Password: "root", DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	return change(ctx, c)
}

// demandingLogin makes the users root, and orderly with rights on the namespace.
func demandingLogin(ctx context.Context, c *clientv3.Client) error {
	return testetcd.DemandLogin(ctx, c, etcd.DefaultNamespace)
}

func demandLogin(t testing.TB, endpoints ...string) *operator {
	t.Helper()
	o := &operator{t, endpoints}
	o.do(demandingLogin)
	return o
}

// grant gives the user the right to read the namespace, or also to write, instead of those
// that it has.
func grant(write bool) change {
	kind := clientv3.PermissionType(clientv3.PermRead)
	if write {
		kind = clientv3.PermissionType(clientv3.PermReadWrite)
	}
	return func(ctx context.Context, c *clientv3.Client) error {
		return testlease.Second(c.RoleGrantPermission(ctx, "orderly", etcd.DefaultNamespace, clientv3.GetPrefixRangeEnd(etcd.DefaultNamespace), kind))
	}
}

func password(text string) change {
	return func(ctx context.Context, c *clientv3.Client) error {
		return testlease.Second(c.UserChangePassword(ctx, "orderly", text))
	}
}

// An operator deletes the ticket of a holder behind whom nobody waits, while
// no watch reaches its process.
func TestHolderDeletedUnwatched(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c, link := m.Client(t), startLink(t, m.URL)
	holder := testlease.Enter(t, open(t, etcd.Options{TTL: time.Minute}, link.url()))
	defer holder.Turn.Leave()
	link.Part(true)
	testlease.Must(t, testlease.Second(c.Delete(t.Context(), ticketsOf(t, c, "a_/")[0].key)))
	link.Cut()
	link.Part(false)
	holder.WantRevoked(t, serializer.ErrLost)
}

// An operator revokes the lease.
func TestLeaseRevoked(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c, e := m.Client(t), open(t, etcd.Options{TTL: 4 * time.Second}, m.URL)
	holder := testlease.Enter(t, e)
	leases, err := c.Leases(t.Context())
	testlease.Must(t, err)
	testlease.Must(t, testlease.Second(c.Revoke(t.Context(), leases.Leases[0].ID)))
	holder.WantRevoked(t, serializer.ErrLost)
	holder.Turn.Leave()
	testlease.EnterSoon(t, e)
	waitUntilEmpty(t, c)
}

// Keys that an operator writes into the namespace must not stop a queue, unless
// they look like tickets; those can be evicted.
func TestOperatorsKeys(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c := m.Client(t)
	here, there := open(t, etcd.Options{}, m.URL), open(t, etcd.Options{}, m.URL)
	put := func(key, value string) {
		t.Helper()
		testlease.Must(t, testlease.Second(c.Put(t.Context(), key, value)))
	}
	del := func(key string) {
		t.Helper()
		testlease.Must(t, testlease.Second(c.Delete(t.Context(), key)))
	}
	lease := func(holder ticket) string {
		name := holder.key[strings.LastIndexByte(holder.key, '/')+1:]
		return name[:strings.IndexByte(name, '-')]
	}
	for name, test := range map[string]struct {
		change func(holder ticket)
		stays  bool // the key looks like a ticket, and no process deletes it
	}{
		"nonsense":                                {func(ticket) { put("orderly/nonsense", "x"); put("orderly/a_/nonsense", "x") }, false},
		"the holder's ticket, again":              {func(h ticket) { put(h.key, "nonsense") }, false},
		"a ticket of its lease, without a caller": {func(h ticket) { h.putAgain(t, c, "77") }, false},
		"a ticket of no lease":                    {func(ticket) { put("orderly/a_/1-1", "{}") }, true},
		"the holder's ticket, anew":               {func(h ticket) { del(h.key); put(h.key, "{}") }, true},
		"another ticket of its lease":             {func(h ticket) { put(fmt.Sprintf("orderly/a_/%s-77", lease(h)), "{}") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			holder := testlease.Enter(t, here).Turn
			test.change(ticketsOf(t, c, "a_/")[0])
			waiter := testlease.Join(t, there)
			holder.Leave()
			if test.stays {
				wait.Until(t, "only the operator's ticket is before the waiter", func() bool {
					q := queueOf(t, there, "a_")
					return len(q.Tickets) == 2 && q.Tickets[0].Owner == "" || waiter.Over()
				})
				evict(t, there, queueOf(t, there, "a_"), 0)
			}
			waiter.Wait(t).Leave()
			for _, e := range []*serializer.Engine{here, there} {
				testlease.EnterSoon(t, e)
			}
			del("orderly/nonsense")
			del("orderly/a_/nonsense")
			waitUntilEmpty(t, c)
		})
	}
}

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
			testlease.Must(t, clients.Wrong)
			if first := clients.First.Token; first == 0 || c.bump > 0 && first <= holder.Turn.Token() {
				t.Errorf("the first token is %d, after %d before the restore", first, holder.Turn.Token())
			}
		})
	}
}

// A pause outlives the engine that made it. A process that starts later obeys it, whatever
// was written to etcd since. Bug: the second read of the pauses seemed to be newer than the
// pause that it showed.
func TestPauseBeforeStart(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	first := open(t, etcd.Options{}, m.URL)
	testlease.Must(t, first.Pause(t.Context(), "a", time.Time{}))
	testlease.Enter(t, first, arrival("b")).Turn.Leave()
	testlease.Must(t, first.Close())
	late := open(t, etcd.Options{}, m.URL)
	for range 3 {
		testlease.Enter(t, late, arrival("b")).Turn.Leave() // a watch of the pauses has begun by the end
		if _, err := late.Enter(t.Context(), testlease.Arrival("a", time.Second)); !errors.Is(err, serializer.ErrTimeout) {
			t.Fatalf("error %v; expected a timeout, for the queue is paused", err)
		}
	}
	testlease.Must(t, late.Resume(t.Context(), "a"))
	testlease.Enter(t, late, arrival("a")).Turn.Leave()
}
