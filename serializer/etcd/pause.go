package etcd

import (
	"context"
	"encoding/json"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pause is the value of a pause's key.
type pause struct {
	Until time.Time `json:"until"`
	Owner string    `json:"owner"` // the process that made it, for people
}

// Pause implements [lease.Protocol]. The key stays until the queue is resumed, or paused again.
func (s *session) Pause(ctx context.Context, name string, until time.Time) error {
	key := s.store.keys.pause(name)
	value, _ := json.Marshal(pause{until, s.store.Owner.Name}) // a text and a time before the year 10,000 always marshal
	change := clientv3.OpPut(key, string(value))
	if until.IsZero() {
		change = clientv3.OpDelete(key)
	}
	answer, err := s.commit(ctx, transaction{then: []clientv3.Op{change}})
	if err != nil || change.IsDelete() && answer.Responses[0].GetResponseDeleteRange().Deleted == 0 {
		return err
	}
	return s.await(ctx, func() bool { return s.applied >= answer.Header.Revision })
}

// pausedLocked reports a pause. An unreadable one pauses nothing, because nobody could say when it
// ends.
func (s *session) pausedLocked(name string, kv *mvccpb.KeyValue) {
	var p pause
	if err := json.Unmarshal(kv.Value, &p); err != nil || p.Until.IsZero() {
		go s.store.Log.Error("a pause in etcd has no end that can be read; it pauses nothing", "key", string(kv.Key), "error", err)
	}
	s.PausedLocked(name, p.Until.UTC())
}
