package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// pause is the value of a pause's key. While the key exists, the queue is paused, whatever
// the time of day on any machine. A pause with an end has a lease of its own, which nobody
// renews. So etcd ends it even if no process runs. A new leader of etcd starts leases anew,
// and they are in whole seconds. So each process also measures the length from when it
// learned of the pause, and then ends the lease.
type pause struct {
	Until  time.Time `json:"until"`            // by the clock of the machine that made it, for people
	Millis int64     `json:"for_ms,omitempty"` // its length; 0 means until it is resumed
	Owner  string    `json:"owner"`            // the process that made it, for people
}

// Pause implements [lease.Protocol]. No other machine's clock counts.
func (s *session) Pause(ctx context.Context, name string, until time.Time) error {
	key := s.store.keys.pause(name)
	if until.IsZero() {
		return s.changePause(ctx, key, clientv3.OpDelete(key))
	}
	p, granted := pause{Until: until, Owner: s.store.Owner.Name}, new(clientv3.LeaseGrantResponse)
	if length := time.Until(until); until.Before(serializer.Forever) {
		var err error
		if granted, err = s.store.cluster.grant(ctx, length); err != nil {
			return fmt.Errorf("requesting the lease of the pause: %w", err)
		}
		p.Millis = max(length.Milliseconds()+1, 1)
	}
	value, _ := json.Marshal(p) // texts, numbers and a time before the year 10,000 always marshal
	err := s.changePause(ctx, key, clientv3.OpPut(key, string(value), clientv3.WithLease(granted.ID)))
	if err != nil {
		_ = s.store.cluster.revoke(s.store.Ctx, granted.ID) // so that a late put of a silent member fails
	}
	return err
}

// changePause changes a pause in etcd, and returns when that was reported.
func (s *session) changePause(ctx context.Context, key string, change clientv3.Op) error {
	answer, err := s.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(key), change}})
	if err != nil {
		return err
	}
	before := answer.Responses[0].GetResponseRange().Kvs
	for _, kv := range before {
		_ = s.store.cluster.revoke(s.store.Ctx, clientv3.LeaseID(kv.Lease)) // which the key no longer belongs to; else it ends by itself
	}
	if change.IsDelete() && len(before) == 0 {
		return nil
	}
	return s.await(ctx, func() bool { return s.applied >= answer.Header.Revision })
}

// pausedLocked reports a pause, and awaits its end. An unreadable one pauses nothing, because
// nobody could say when it ends.
func (s *session) pausedLocked(name string, kv *mvccpb.KeyValue) {
	var p pause
	if err := json.Unmarshal(kv.Value, &p); err != nil || p.Until.IsZero() {
		go s.store.Log.Error("a pause in etcd has no end that can be read; it pauses nothing", "key", string(kv.Key), "error", err)
		s.PausedLocked(name, time.Time{})
		return
	}
	if id := clientv3.LeaseID(kv.Lease); p.Millis > 0 && s.store.awaited[name] != id {
		s.store.awaited[name] = id
		go s.store.expire(id, time.Duration(p.Millis)*time.Millisecond)
	}
	s.PausedLocked(name, p.Until.UTC())
}

// expire ends a pause when its time has come, by its lease. If etcd refuses that, the lease
// ends by itself.
func (st *Store) expire(id clientv3.LeaseID, length time.Duration) {
	lease.Sleep(st.Ctx, length)
	for st.Ctx.Err() == nil {
		if err := st.cluster.revoke(st.Ctx, id); err == nil || !transient(err) {
			return
		}
		lease.Sleep(st.Ctx, lease.RetryPause)
	}
}
