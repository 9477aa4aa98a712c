package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Sync implements [lease.Protocol].
func (s *session) Sync(ctx context.Context) error { return s.catchUp(ctx, requestTime) }

var errBehind = errors.New("the watch does not show what has happened")

// catchUp waits until the watch has shown all that a majority of the members has agreed on.
func (s *session) catchUp(ctx context.Context, patience time.Duration) error {
	answer, err := s.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(s.store.keys.session(s.id))}})
	if err != nil {
		return err
	}
	if w := s.watch.Load(); w != nil {
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: new(pb.WatchProgressRequest)}})
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errBehind)
	defer cancel()
	return s.await(ctx, func() bool { return s.shown.Load() >= answer.Header.Revision })
}

// await waits until a condition holds, which may change when something is reported, or until the
// session is over.
func (s *session) await(ctx context.Context, holdsLocked func() bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.Ctx, func() { cancel(context.Cause(s.Ctx)) })()
	return s.store.AwaitChange(ctx, holdsLocked)
}

// monitor checks the watch each second. It may show nothing because nothing happens, or
// because its member is silent or cut off. Then that member is distrusted.
func (s *session) monitor() {
	c := s.store.cluster
	for s.Ctx.Err() == nil {
		lease.Sleep(s.Ctx, time.Second)
		w := s.watch.Load()
		if err := s.catchUp(s.Ctx, 2*c.patience); errors.Is(err, errBehind) && w != nil && s.watch.Load() == w {
			c.distrust(w.member)
			w.end(err)
		}
	}
}
