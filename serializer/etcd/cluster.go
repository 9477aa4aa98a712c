package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// cluster is the members of etcd. Requests go to the preferred member while it answers.
//
// A member that is stopped or cut off does not refuse requests: its connection stays open
// and silent. gRPC needs at least 13 seconds to notice. So a request that is not answered
// soon also goes to the next member, and the first answer counts. If another member
// answers first, it becomes the preferred one; the watch at the old one ends, and is begun
// again. So every request must tolerate being carried out twice. All requests here do.
type cluster struct {
	members   []*member
	patience  time.Duration // how long to wait before asking another member
	preferred atomic.Int64  // index of a member
}

// newCluster prepares the connections. They are opened when they are first needed.
func newCluster(o Options) (*cluster, error) {
	c := &cluster{patience: min(max(o.TTL/10, 200*time.Millisecond), 500*time.Millisecond)}
	for _, endpoint := range o.Endpoints {
		m, err := newMember(endpoint, o)
		if err != nil {
			return nil, err
		}
		c.members = append(c.members, m)
	}
	// Spread the load of all processes over the members.
	c.preferred.Store(rand.Int64N(int64(len(c.members))))
	return c, nil
}

func (c *cluster) close() {
	for _, m := range c.members {
		_ = m.client.Close() // the error only says that it is closed
	}
}

// distrust makes another member the preferred one.
func (c *cluster) distrust(i int64) { c.replace(i, (i+1)%int64(len(c.members))) }

// replace changes the preferred member, unless it has changed in the meantime.
func (c *cluster) replace(from, to int64) {
	if c.preferred.CompareAndSwap(from, to) {
		if w := c.members[from].watching.Load(); w != nil {
			w.end(errDistrusted)
		}
	}
}

var errDistrusted = errors.New("the member does not answer")

// requestTime is how long a request may take before it is repeated, or fails.
const requestTime = 2 * time.Second

// ask returns the first answer of any member, starting with the preferred one. The
// request may be carried out more than once. An error that every member would give is
// returned at once.
func ask[T any](ctx context.Context, c *cluster, request func(context.Context, *member) (T, error)) (none T, failed error) {
	type answer struct {
		member int64
		value  T
		err    error
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	n, first := int64(len(c.members)), c.preferred.Load()
	answers := make(chan answer, n)
	patience := time.NewTimer(c.patience)
	defer patience.Stop()
	for asked, open := int64(0), 0; ; {
		if asked < n {
			i := (first + asked) % n
			asked++
			open++
			go func() {
				value, err := authorized(ctx, c.members[i], request)
				answers <- answer{i, value, c.members[i].explain(err)}
			}()
			patience.Reset(c.patience)
		}
		select {
		case a := <-answers:
			if a.err == nil || !transient(a.err) {
				if a.member != first {
					c.replace(first, a.member)
				}
				return a.value, a.err
			}
			if failed != nil {
				a.err = fmt.Errorf("%w; %w", failed, a.err) // on one line
			}
			failed = a.err
			if open--; open == 0 && asked == n {
				return none, failed
			}
		case <-patience.C:
		case <-ctx.Done():
			return none, cmp.Or(failed, ctx.Err())
		}
	}
}

// transient reports whether an error may pass by itself: the member was gone, had no
// leader, or did not answer. Only etcd itself gives errors that do not.
func transient(err error) bool {
	known, ok := errors.AsType[rpctypes.EtcdError](err)
	return !ok || known.Code() == codes.Unavailable
}

// denied reports whether etcd refuses the user. That may pass: somebody may correct the
// password or the role.
func denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrAuthFailed) || unauthenticated(err)
}

// transaction is a request to etcd, which carries it out at one revision, if the
// conditions hold.
type transaction struct {
	when []clientv3.Cmp
	then []clientv3.Op
}

// commit sends a transaction.
func (c *cluster) commit(ctx context.Context, txn transaction) (*clientv3.TxnResponse, error) {
	return ask(ctx, c, func(ctx context.Context, m *member) (*clientv3.TxnResponse, error) {
		return m.client.Txn(ctx).If(txn.when...).Then(txn.then...).Commit()
	})
}

// grant requests a lease. If the answer is lost, an unused lease is left to expire.
func (c *cluster) grant(ctx context.Context, ttl time.Duration) (*clientv3.LeaseGrantResponse, error) {
	return ask(ctx, c, func(ctx context.Context, m *member) (*clientv3.LeaseGrantResponse, error) {
		return m.client.Grant(ctx, int64(ttl.Seconds()))
	})
}

// renew renews a lease, once, and returns its time to live.
func (c *cluster) renew(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	answer, err := ask(ctx, c, func(ctx context.Context, m *member) (*pb.LeaseKeepAliveResponse, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // of the stream
		stream, err := m.leases.LeaseKeepAlive(ctx)
		if err != nil {
			return nil, err
		}
		_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // if that fails, Recv says why
		return stream.Recv()
	})
	if err == nil && answer.TTL <= 0 {
		err = lease.ErrEnded
	}
	return time.Duration(answer.GetTTL()) * time.Second, err
}

// revoke ends a lease, if there is one.
func (c *cluster) revoke(ctx context.Context, id clientv3.LeaseID) error {
	_, err := ask(ctx, c, func(ctx context.Context, m *member) (*clientv3.LeaseRevokeResponse, error) {
		return m.client.Revoke(ctx, id)
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}
