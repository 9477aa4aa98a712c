package etcd

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// keyRange is a range of keys that a session follows.
type keyRange struct {
	what   string // for errors
	prefix string
	skip   []pb.WatchCreateRequest_FilterType // events that do not matter
	events func([]*mvccpb.Event)
	found  func(keys []*mvccpb.KeyValue, rev int64) // called with the keys that exist when the watch begins
}

// follow follows the keys of a range until the session is over.
func (s *session) follow(r keyRange) {
	for s.ctx.Err() == nil {
		if err := s.followOnce(r); err != nil && s.ctx.Err() == nil {
			s.complain("", err)
			sleep(s.ctx, retryPause)
		}
	}
}

func (s *session) followOnce(r keyRange) error {
	ended := make(chan struct{})
	w, rev, err := s.watch(0, watchOf(r.prefix, r.skip...), r.events, func() { close(ended) })
	if err != nil {
		return fmt.Errorf("watching %s: %w", r.what, err)
	}
	defer w.stop()
	// If the previous watch was lost with its connection, etcd may have been restored
	// from a backup. A read that a majority confirms lets checkHistory notice that.
	before, err := s.read(rev, true, allOf(r.prefix))
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.what, err)
	}
	r.found(before.kvs(0), before.rev())
	select {
	case <-ended:
		return nil // the member ended it; the next watch goes to another one
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
