package test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// operator is somebody with all rights, on a cluster that demands a login.
type operator struct {
	t         *testing.T
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

// firstGone returns how long after start etcd has deleted the first ticket of a queue.
func (o *operator) firstGone(queue string, start time.Time) time.Duration {
	if err := o.try(func(ctx context.Context, c *clientv3.Client) error {
		first := ticketsOf(o.t, c, queue)[0].key
		wait.Poll(wait.Patience, func() bool {
			answer, err := c.Get(ctx, first)
			return err == nil && answer.Count == 0
		})
		return nil
	}); err != nil {
		o.t.Error(err)
	}
	return time.Since(start)
}

// demandingLogin makes the users root, and orderly with rights on the namespace.
func demandingLogin(ctx context.Context, c *clientv3.Client) error {
	return testetcd.DemandLogin(ctx, c, etcd.DefaultNamespace)
}

func demandLogin(t *testing.T, endpoints ...string) *operator {
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
		return second(c.RoleGrantPermission(ctx, "orderly", etcd.DefaultNamespace, clientv3.GetPrefixRangeEnd(etcd.DefaultNamespace), kind))
	}
}

func password(text string) change {
	return func(ctx context.Context, c *clientv3.Client) error {
		return second(c.UserChangePassword(ctx, "orderly", text))
	}
}

// An operator deletes the whole namespace. The holder is revoked, all waiters are
// refused as evicted, and the queues go on.
func TestNamespaceDeleted(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c, here, there := m.Client(t), open(t, etcd.Options{}, m.URL), open(t, etcd.Options{}, m.URL)
	holder, revoked := held(t, here, "a_")
	waiters := []<-chan result{join(t, here, "a_"), join(t, there, "a_")}
	must(t, second(c.Delete(t.Context(), etcd.DefaultNamespace, clientv3.WithPrefix())))
	for _, waiter := range waiters {
		wantRefusal(t, (<-waiter).err, serializer.ReasonEvicted, serializer.ErrEvicted)
	}
	wantRevoked(t, revoked, serializer.ErrLost)
	holder.Leave()
	for _, e := range []*engine{here, there} {
		enterSoon(t, e, "a_")
	}
	waitUntilEmpty(t, c)
}

// An operator deletes the ticket of a holder behind whom nobody waits, while
// no watch reaches its process.
func TestHolderDeletedUnwatched(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c, link := m.Client(t), startRelay(t, m.URL)
	holder, revoked := held(t, open(t, etcd.Options{TTL: time.Minute}, link.url()), "a_")
	defer holder.Leave()
	link.part(true)
	must(t, second(c.Delete(t.Context(), ticketsOf(t, c, "a_/")[0].key)))
	link.cut()
	link.part(false)
	wantRevoked(t, revoked, serializer.ErrLost)
}

// Keys that an operator writes into the namespace must not stop a queue, unless
// they look like tickets; those can be evicted.
func TestOperatorsKeys(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c := m.Client(t)
	here, there := open(t, etcd.Options{}, m.URL), open(t, etcd.Options{}, m.URL)
	put := func(key, value string) {
		t.Helper()
		must(t, second(c.Put(t.Context(), key, value)))
	}
	del := func(key string) {
		t.Helper()
		must(t, second(c.Delete(t.Context(), key)))
	}
	lease := func(holder ticket) string {
		name := holder.key[strings.LastIndexByte(holder.key, '/')+1:]
		return name[:strings.IndexByte(name, '-')]
	}
	for name, test := range map[string]struct {
		change func(holder ticket)
		stays  bool // the key looks like a ticket, and no process deletes it
	}{
		"nonsense":                   {func(ticket) { put("orderly/nonsense", "x"); put("orderly/a_/nonsense", "x") }, false},
		"the holder's ticket, again": {func(h ticket) { put(h.key, "nonsense") }, false},
		"a request to evict nothing": {func(h ticket) {
			put("orderly/!evict/"+lease(h)+"/x", "a_")
			put("orderly/!evict/"+lease(h)+"/1", "a_")
		}, false},
		"a ticket of its lease, without a caller": {func(h ticket) { h.putAgain(t, c, "77") }, false},
		"a ticket of no lease":                    {func(ticket) { put("orderly/a_/1-1", "{}") }, true},
		"the holder's ticket, anew":               {func(h ticket) { del(h.key); put(h.key, "{}") }, true},
		"another ticket of its lease":             {func(h ticket) { put(fmt.Sprintf("orderly/a_/%s-77", lease(h)), "{}") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			holder := enter(t, here, "a_")
			test.change(ticketsOf(t, c, "a_/")[0])
			waiter := join(t, there, "a_")
			holder.Leave()
			if test.stays {
				wait.Until(t, "only the operator's ticket is before the waiter", func() bool {
					q := queueOf(t, there, "a_")
					return len(q.Tickets) == 2 && q.Tickets[0].Owner == "" || len(waiter) > 0
				})
				evict(t, there, queueOf(t, there, "a_"), 0)
			}
			(<-waiter).leave(t)
			for _, e := range []*engine{here, there} {
				enterSoon(t, e, "a_")
			}
			del("orderly/nonsense")
			del("orderly/a_/nonsense")
			waitUntilEmpty(t, c)
		})
	}
}

// Tickets can be evicted from another machine, even while their owner is cut off: the
// owner obeys as soon as it is back. Bug: nobody noticed that it did not answer.
func TestEvictedFromAnotherMachine(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	link := startRelay(t, m.URL)
	owner, other := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	for name, cutOff := range map[string]bool{"connected": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			holder, revoked := held(t, owner, "a_")
			waiter, last := join(t, owner, "a_"), join(t, other, "a_")
			q := queueOf(t, other, "a_")
			link.part(cutOff)
			limit, want := 30*time.Second, error(nil)
			if cutOff {
				limit, want = 500*time.Millisecond, context.DeadlineExceeded
			}
			for _, ticket := range q.Tickets[:2] {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				token, err := strconv.ParseUint(ticket.Token, 10, 64)
				must(t, err)
				if err := other.Evict(ctx, "a_", token); !errors.Is(err, want) {
					t.Errorf("evicting returned %v; expected %v", err, want)
				}
				cancel()
			}
			if cutOff {
				link.cut()
				link.part(false)
			}
			wantRevoked(t, revoked, serializer.ErrEvicted)
			wantRefusal(t, (<-waiter).err, serializer.ReasonEvicted, serializer.ErrEvicted)
			holder.Leave()
			(<-last).leave(t)
			waitUntilEmpty(t, m.Client(t))
		})
	}
}
