package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// watch is a stream of events from one member. It ends with the first error; the caller that needs
// it begins another one. etcd serves a watch that begins in the past only ten times a
// second, so each watch begins now. So a compaction cannot remove anything that is needed,
// either.
type watch struct {
	stream pb.Watch_WatchClient
	end    context.CancelCauseFunc
	member int64 // its index in the cluster
	rev    int64 // events after this revision are passed on

	sending sync.Mutex
}

// watch begins a watch of all keys with a prefix at the preferred member. It ends with ctx.
// A member that does not answer soon is no longer preferred.
func (c *cluster) watch(ctx context.Context, prefix string) (*watch, error) {
	opening, cancel := context.WithTimeoutCause(ctx, 2*c.patience, errDistrusted)
	defer cancel()
	w := &watch{member: c.preferred.Load()}
	m := c.members[w.member]
	_, err := authorized(opening, m, func(opening context.Context, m *member) (*watch, error) {
		return w, w.open(clientv3.WithRequireLeader(ctx), opening, m, prefix)
	})
	if err != nil {
		if ctx.Err() == nil && !denied(err) {
			c.distrust(w.member)
		}
		return nil, fmt.Errorf("watching the namespace: %w", m.explain(err))
	}
	m.watching.Store(w)
	return w, nil
}

// open waits until etcd confirms the watch, or opening is done.
func (w *watch) open(ctx, opening context.Context, m *member, prefix string) (err error) {
	ctx, w.end = context.WithCancelCause(ctx)
	defer context.AfterFunc(opening, func() { w.end(context.Cause(opening)) })()
	var created *pb.WatchResponse
	if w.stream, err = pb.NewWatchClient(m.client.ActiveConnection()).Watch(ctx); err == nil {
		create := &pb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix))}
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
		created, err = w.next()
	}
	if err != nil {
		w.end(err)
		return cmp.Or(context.Cause(opening), err)
	}
	w.rev = created.Header.Revision
	return nil
}

// send sends a request. If that fails, next says why.
func (w *watch) send(request *pb.WatchRequest) {
	w.sending.Lock()
	defer w.sending.Unlock()
	_ = w.stream.Send(request)
}

// next returns the next answer. Without events, it says how far the watch is.
func (w *watch) next() (*pb.WatchResponse, error) {
	answer, err := w.stream.Recv()
	switch {
	case err != nil:
		return nil, rpctypes.Error(err)
	case answer.Canceled || answer.CompactRevision > 0:
		return nil, watchError(answer.CancelReason)
	}
	return answer, nil
}

// watchError converts etcd's reason for refusing a watch, which is text, into an error.
func watchError(reason string) error {
	if _, text, ok := strings.Cut(reason, " desc = "); ok {
		reason = text
	}
	err := rpctypes.Error(status.Error(codes.Unknown, reason))
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		// etcd 3.4 says no more if the token is too old.
		err = fmt.Errorf("%w: %w", rpctypes.ErrInvalidAuthToken, err)
	}
	return fmt.Errorf("etcd does not watch: %w", err)
}
