package etcd

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keyspace names the keys of one namespace:
//
//	<namespace><queue>/<lease>-<seq>     a ticket; both numbers in hex
//	<namespace>!history                  a random text, which stands for all that follows from it
//	<namespace>!pause/<queue>            pauses a queue, or all that begin so
//	<namespace>!session/<lease>          a process; its end is that of the lease
//
// The queue's name is URL-escaped as one segment, so it holds neither a slash nor an
// exclamation mark, and no queue's keys lie among another's.
type keyspace string

// ticketKey is what the key of a ticket says.
type ticketKey struct {
	queue string
	lease clientv3.LeaseID
	seq   uint64 // unique for the lease; ends in the place in the batch
}

// The last bits of a ticket's sequence are its place among the tickets that were put at
// the same revision. They are also the last bits of its number.
const (
	batchBits = 6
	maxBatch  = 1 << batchBits
)

func (k ticketKey) number(revision int64) uint64 { return uint64(revision)<<batchBits | k.seq%maxBatch }

// revisionOf is the revision at which a ticket was put.
func revisionOf(number uint64) int64 { return int64(number >> batchBits) }

// ticket returns the key of a ticket. Those of a batch are in order.
func (n keyspace) ticket(k ticketKey) string {
	return fmt.Sprintf("%s%s/%x-%012x", n, url.PathEscape(k.queue), k.lease, k.seq)
}

// parseTicket parses the key of a ticket. ok is false for keys of other forms.
func (n keyspace) parseTicket(key string) (_ ticketKey, ok bool) {
	rest, ok := strings.CutPrefix(key, string(n))
	escaped, name, _ := strings.Cut(rest, "/")
	lease, seq, _ := strings.Cut(name, "-")
	queue, queueErr := url.PathUnescape(escaped)
	id, idErr := strconv.ParseInt(lease, 16, 64)
	place, seqErr := strconv.ParseUint(seq, 16, 64)
	ok = ok && queueErr == nil && idErr == nil && seqErr == nil && url.PathEscape(queue) == escaped
	return ticketKey{queue, clientv3.LeaseID(id), place}, ok
}

func (n keyspace) pause(name string) string { return string(n) + "!pause/" + url.PathEscape(name) }

// paused returns the name that a pause's key is for.
func (n keyspace) paused(key string) (name string, ok bool) {
	escaped, ok := strings.CutPrefix(key, string(n)+"!pause/")
	name, err := url.PathUnescape(escaped)
	return name, ok && err == nil
}

func (n keyspace) history() string { return string(n) + "!history" }

func (n keyspace) session(lease clientv3.LeaseID) string {
	return fmt.Sprintf("%s!session/%x", n, lease)
}
