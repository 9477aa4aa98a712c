package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// A pause is a key: while it exists, the queue is paused, whatever the time of day on any
// machine. A pause with an end has a lease of its own, which nobody renews. So etcd ends
// it even if no process runs. A new leader of etcd starts leases anew, and they are in
// whole seconds. So each process also measures the length from when it learned of the
// pause, and then deletes the key.
//
// Every session reads the pauses before it issues tickets, and watches them.
//
// While a queue is paused, order and rules do not show who is inside. So each process
// that learns of the pause writes that into the keys of its own holders, for the lists of
// the other processes.

// pause is the value of a pause's key.
type pause struct {
	Until  time.Time `json:"until"`            // by the clock of the machine that made it, for people
	Millis int64     `json:"for_ms,omitempty"` // its length; 0 means until it is resumed
	Owner  string    `json:"owner"`            // the process that made it, for people
}

// length returns how long the pause lasts; 0 means until it is resumed.
func (p pause) length() time.Duration { return time.Duration(p.Millis) * time.Millisecond }

// pause returns the key of a queue's or a group's pause.
func (n keyspace) pause(queue string) string { return string(n) + pauses + url.PathEscape(queue) }

// paused returns the queue or the group that a pause's key names.
func (n keyspace) paused(key string) (queue string, ok bool) {
	escaped, ok := strings.CutPrefix(key, string(n)+pauses)
	queue, err := url.PathUnescape(escaped)
	return queue, ok && err == nil
}

// parsePause parses a pause. An unreadable one pauses nothing, because nobody could say
// when it ends.
func parsePause(value []byte) (p pause, err error) {
	if err := json.Unmarshal(value, &p); err != nil || p.Until.IsZero() {
		return pause{}, fmt.Errorf("reading a pause, which pauses nothing until it is corrected: %w", cmp.Or(err, errNoUntil))
	}
	p.Until = p.Until.UTC()
	return p, nil
}

var errNoUntil = errors.New("it has no until")

// pauseGrace is how long others may take to learn of a pause, and to write who is inside.
const pauseGrace = 300 * time.Millisecond

// Pause implements [serializer.Pauser]. It returns when this process obeys, and others
// that etcd reaches have had time to notice. The pause lasts as long as until is ahead of
// this machine's clock; no other clock counts.
func (e *Engine) Pause(ctx context.Context, queue string, until time.Time) error {
	end, err := serializer.PauseEnd(queue, until)
	if err != nil {
		return err
	}
	p, known := pause{Until: end, Owner: e.owner}, knownPause{until: end}
	if end.Before(serializer.Resumed) {
		length := time.Until(until)
		known.end = e.clock() + length
		p.Millis = int64(math.Ceil(float64(length) / float64(time.Millisecond)))
	}
	if err := e.putPause(ctx, queue, p, known); err != nil {
		return fmt.Errorf("pausing queue %q: %w", queue, err)
	}
	select {
	case <-time.After(pauseGrace):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// putPause writes a pause, with a lease unless it lasts until it is resumed.
func (e *Engine) putPause(ctx context.Context, queue string, p pause, known knownPause) error {
	value, err := json.Marshal(p)
	if err != nil {
		return err
	}
	lease, err := e.leasePause(ctx, p.length())
	if err != nil {
		return err
	}
	err = e.changePause(ctx, queue, known, put(e.keys.pause(queue), string(value), lease))
	if err != nil {
		e.revokePause(lease) // so that a late put of a silent member fails
	}
	return err
}

// longestLease is the longest time to live that etcd grants, in seconds.
const longestLease = 9_000_000_000

// leasePause requests a lease for a pause; 0 for one without an end.
func (e *Engine) leasePause(ctx context.Context, length time.Duration) (id int64, err error) {
	if length == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	id = newLeaseID()
	seconds := min(int64(math.Ceil(length.Seconds())), longestLease)
	_, err = ask(ctx, e.cluster, func(ctx context.Context, m *member) (leaseAnswer, error) { return m.grant(ctx, id, seconds) })
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseExist) { // it exists if two members were asked
		return 0, e.storageError("requesting the lease of a pause from", err)
	}
	return id, nil
}

// revokePause gives back the lease of a pause that was changed. If that fails, the lease
// ends by itself.
func (e *Engine) revokePause(lease int64) {
	if lease != 0 {
		_ = e.revoke(e.ctx, lease)
	}
}

// Resume implements [serializer.Pauser].
func (e *Engine) Resume(ctx context.Context, queue string) error {
	if err := e.changePause(ctx, queue, knownPause{}, erase(e.keys.pause(queue), "")); err != nil {
		return fmt.Errorf("resuming queue %q: %w", queue, err)
	}
	return nil
}

// changePause changes a pause in etcd, and obeys at once.
func (e *Engine) changePause(ctx context.Context, queue string, known knownPause, change *pb.RequestOp) error {
	s, err := e.current(ctx)
	if err != nil {
		return err
	}
	before := get(&pb.RangeRequest{Key: []byte(e.keys.pause(queue))}) // a read of the key alone shows no lease
	answer, err := e.request(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{before, change}})
	if err != nil {
		return e.storageError("changing a pause in", err)
	}
	known.rev = answer.rev()
	s.learnPauses(map[string]knownPause{queue: known})
	e.revokePause(firstOf(answer.kvs(0)).Lease) // the key no longer belongs to it
	return nil
}

// Interface guard
var _ serializer.Pauser = (*Engine)(nil)
