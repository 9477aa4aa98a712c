package etcd

import (
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// errOtherHistory is why a session ends when etcd was restored from a backup. Tickets may
// then be missing, or exist again, whatever the state of the lease. What the process
// knows about queues is based on revisions that etcd will use again.
var errOtherHistory = errors.New("etcd was restored from a backup, or the endpoints belong to several clusters")

// reached is the greatest revision that etcd has reported in this session.
func (s *session) reached() int64 {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.revision
}

// reach notes a revision that etcd has reported.
func (s *session) reach(rev int64) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.revision = max(s.revision, rev)
}

// checkHistory ends the session if an answer comes from a different cluster than the
// lease, or from a revision below least. least is the revision that had been reached when
// the request was sent: etcd orders the request after it.
func (s *session) checkHistory(h *pb.ResponseHeader, least int64) error {
	s.reach(h.GetRevision())
	cluster := s.clusterID
	var err error
	switch {
	case h.GetClusterId() != cluster:
		err = fmt.Errorf("%w: cluster %x answered, the lease is from %x", errOtherHistory, h.GetClusterId(), cluster)
	case h.GetRevision() < least:
		err = fmt.Errorf("%w: it is at revision %d, and was at %d", errOtherHistory, h.GetRevision(), least)
	default:
		return nil
	}
	s.lose(err)
	return err
}

// checkReached requires an answer from a majority if a member is behind a revision that
// etcd has reported: that member may only be late.
func (s *session) checkReached(h *pb.ResponseHeader) error {
	if h.GetClusterId() == s.clusterID && h.GetRevision() >= s.reached() {
		s.reach(h.GetRevision())
		return nil
	}
	_, err := s.read(0, true, keyOf(string(s.engine.keys)+probe))
	return err
}
