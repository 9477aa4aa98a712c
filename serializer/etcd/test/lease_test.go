package test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// A process that is cut off must stop before etcd lets others in.
func TestDeadline(t *testing.T) {
	m := testetcd.Start(t)
	c := m.Client(t)
	link := startRelay(t, m.URL)
	const ttl = 3 * time.Second
	cutOff := open(t, etcd.Options{TTL: ttl}, link.url())
	other := open(t, etcd.Options{TTL: ttl}, m.URL)

	revoked := make(chan error, 1)
	a := arrival("a_")
	a.Revoke = func(err error) {
		if keys := keysOf(t, c); len(keys) == 0 || len(queueOf(t, other, "a_").Tickets) == 0 {
			t.Error("etcd has ended the lease before the process gave it up")
		}
		revoked <- err
	}
	holder := enter(t, cutOff, a)
	waiting := join(t, cutOff, arrival("a_"))
	next := join(t, other, arrival("a_"))

	link.hold(true)
	start := time.Now()
	if err := <-revoked; !errors.Is(err, serializer.ErrLost) {
		t.Errorf("revoked with %v", err)
	}
	if took := time.Since(start); took > ttl {
		t.Errorf("revoked after %s", took)
	}
	wantRefusal(t, (<-waiting).err, serializer.ReasonLost, serializer.ErrLost)
	late := arrival("a_")
	late.Timeout = 0
	_, err := cutOff.Enter(context.Background(), late)
	wantRefusal(t, err, serializer.ReasonStorage, serializer.ErrStorage)

	(<-next).leave(t)
	t.Logf("the next one entered %s after the cut", time.Since(start).Round(time.Millisecond))

	link.hold(false)
	link.cut()
	late.Timeout = time.Second
	wait.Until(t, "a newcomer waits for the holder, which has not left", func() bool {
		_, err := cutOff.Enter(context.Background(), late)
		return errors.Is(err, serializer.ErrTimeout)
	})
	holder.Leave()
	enterSoon(t, cutOff, "a_")
	waitUntilEmpty(t, c)
}

// An operator revokes the lease.
func TestLeaseRevoked(t *testing.T) {
	m := testetcd.Start(t)
	c := m.Client(t)
	e := open(t, etcd.Options{TTL: 4 * time.Second}, m.URL)
	revoked := make(chan error, 1)
	a := arrival("a_")
	a.Revoke = func(err error) { revoked <- err }
	holder := enter(t, e, a)
	leases := testetcd.Leases(t, c)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	if _, err := c.Revoke(context.Background(), leases[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := <-revoked; !errors.Is(err, serializer.ErrLost) {
		t.Errorf("revoked with %v", err)
	}
	holder.Leave()
	enterSoon(t, e, "a_")
	waitUntilEmpty(t, c)
}

// An operator deletes the key of a ticket that waits.
func TestTicketDeleted(t *testing.T) {
	m := testetcd.Start(t)
	c := m.Client(t)
	e := open(t, etcd.Options{}, m.URL)
	holder := enter(t, e, arrival("a_"))
	waiting := join(t, e, arrival("a_"))
	keys, err := c.Get(context.Background(), etcd.DefaultNamespace, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(context.Background(), string(keys.Kvs[0].Key)); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, (<-waiting).err, serializer.ReasonEvicted, serializer.ErrEvicted)
	holder.Leave()
	waitUntilEmpty(t, c)
}

// A request whose answer is lost is sent again, and must not take a second
// ticket: nobody would ever give it back.
func TestLostAnswer(t *testing.T) {
	m := testetcd.Start(t)
	c := m.Client(t)
	link := startRelay(t, m.URL)
	e := open(t, etcd.Options{TTL: time.Minute}, link.url())
	enter(t, e, arrival("a_")).Leave()
	waitUntilEmpty(t, c)
	history := c.Watch(context.Background(), etcd.DefaultNamespace+"a_/", clientv3.WithPrefix())

	for range 5 {
		link.hold(true)
		done := make(chan result, 1)
		go func() {
			turn, err := e.Enter(context.Background(), arrival("a_"))
			done <- result{turn, err}
		}()
		wait.Until(t, "the ticket exists", func() bool { return len(keysOf(t, c)) == 1 })
		link.cut()
		link.hold(false)
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.turn.Position() != 0 {
			t.Errorf("position %d: it has waited for itself", r.turn.Position())
		}
		r.turn.Leave()
		waitUntilEmpty(t, c)
	}
	puts := 0
	quiet := time.After(time.Second) // longer than any request is in flight
	for open := true; open; {
		select {
		case more := <-history:
			for _, event := range more.Events {
				if event.IsCreate() {
					puts++
				}
			}
		case <-quiet:
			open = false
		}
	}
	// A repeated request in flight may make a ticket again, which is deleted
	// at once.
	if puts > 6 {
		t.Errorf("%d tickets were made for 5 arrivals", puts)
	}
}

// A key that a late request makes again after its deletion is unowned. It must
// not block the queue.
func TestStray(t *testing.T) {
	m := testetcd.Start(t)
	c := m.Client(t)
	link := startRelay(t, m.URL)
	e := open(t, etcd.Options{TTL: time.Minute}, link.url())
	enter(t, e, arrival("a_")).Leave()
	waitUntilEmpty(t, c)

	link.hold(true)
	done := make(chan result, 1)
	go func() {
		turn, err := e.Enter(context.Background(), arrival("a_"))
		done <- result{turn, err}
	}()
	var stray *clientv3.GetResponse
	wait.Until(t, "the ticket exists", func() bool {
		answer, err := c.Get(context.Background(), etcd.DefaultNamespace+"a_/", clientv3.WithPrefix())
		stray = answer
		return err == nil && answer.Count == 1
	})
	link.cut()
	link.hold(false)
	(<-done).leave(t)
	waitUntilEmpty(t, c)

	kv := stray.Kvs[0]
	if _, err := c.Put(context.Background(), string(kv.Key), string(kv.Value), clientv3.WithLease(clientv3.LeaseID(kv.Lease))); err != nil {
		t.Fatal(err)
	}
	waitUntilEmpty(t, c)
}

// Bug: a member was silent, and another one made the ticket. When the silent one woke
// up, it made the ticket again, after its use and deletion. Nobody looked for it,
// because the request had an answer, and other machines waited for it until their
// timeout.
func TestStrayOfSilentMember(t *testing.T) {
	m := testetcd.Start(t)
	c := m.Client(t)
	links := []*relay{startRelay(t, m.URL), startRelay(t, m.URL)}
	here := open(t, etcd.Options{TTL: time.Minute}, links[0].url(), links[1].url())
	there := open(t, etcd.Options{}, m.URL)
	for _, link := range links { // one of them is in use
		enter(t, here, arrival("a_")).Leave()
		waitUntilEmpty(t, c)
		link.part(true)
		turn := enter(t, here, arrival("a_"))
		answer, err := c.Get(context.Background(), etcd.DefaultNamespace+"a_/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		turn.Leave()
		waitUntilEmpty(t, c)
		link.part(false)
		kv := answer.Kvs[0]
		if _, err := c.Put(context.Background(), string(kv.Key), string(kv.Value), clientv3.WithLease(clientv3.LeaseID(kv.Lease))); err != nil {
			t.Fatal(err)
		}
		enter(t, there, arrival("a_")).Leave()
		waitUntilEmpty(t, c)
	}
}

// While etcd is unreachable, nobody new enters; once it is back, the queue
// continues.
func TestRestart(t *testing.T) {
	m := testetcd.Start(t)
	here, there := open(t, etcd.Options{TTL: time.Minute}, m.URL), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	holder := enter(t, here, arrival("a_"))
	waiting := join(t, there, arrival("a_"))
	m.Stop()
	holder.Leave()
	late := make(chan result, 1)
	go func() {
		turn, err := here.Enter(context.Background(), arrival("a_"))
		late <- result{turn, err}
	}()
	select {
	case <-waiting:
		t.Error("entered without etcd")
	case <-late:
		t.Error("took a ticket without etcd")
	case <-time.After(300 * time.Millisecond):
	}
	m.Start(t)
	(<-waiting).leave(t)
	(<-late).leave(t)
	waitUntilEmpty(t, m.Client(t))
}

// The cluster need not be there when the engine is opened.
func TestUnreachable(t *testing.T) {
	m := testetcd.New(t)
	e := openAlone(t, etcd.Options{}, m.URL)
	_, err := e.Enter(context.Background(), arrival("a_"))
	wantRefusal(t, err, serializer.ReasonStorage, serializer.ErrStorage)
	if !strings.Contains(err.Error(), m.URL) {
		t.Errorf("the error does not name the cluster: %v", err)
	}
	if _, err := e.Queues(context.Background()); !errors.Is(err, serializer.ErrStorage) {
		t.Errorf("listing queues: %v", err)
	}
	m.Start(t)
	enterSoon(t, e, "a_")
}

// History is compacted away while many wait, and connections break.
func TestCompactionAndLostWatches(t *testing.T) {
	m := testetcd.Start(t)
	c := m.Client(t)
	links := []*relay{startRelay(t, m.URL), startRelay(t, m.URL)}
	ctx, cancel := context.WithCancel(context.Background())
	var faults sync.WaitGroup
	faults.Go(func() {
		for ctx.Err() == nil {
			if answer, err := c.Get(ctx, "x"); err == nil {
				_, _ = c.Compact(ctx, answer.Header.Revision) // fails where nothing is new
			}
			for _, link := range links {
				link.cut()
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	var all crowd
	for i := range 2 {
		all.comes(t, open(t, etcd.Options{TTL: time.Minute}, links[i].url()), 4, 40, 2*time.Millisecond)
	}
	all.callers.Wait()
	cancel()
	faults.Wait()
	all.wantOrder(t, 320)
	waitUntilEmpty(t, c)
}

// A slow link costs time and nothing else.
func TestSlowLink(t *testing.T) {
	m := testetcd.Start(t)
	link := startRelay(t, m.URL)
	link.slow(50 * time.Millisecond)
	far, near := open(t, etcd.Options{}, link.url()), open(t, etcd.Options{}, m.URL)
	var all crowd
	for _, e := range []*engine{far, near} {
		all.comes(t, e, 4, 10, 0)
	}
	all.wantOrder(t, 80)
}
