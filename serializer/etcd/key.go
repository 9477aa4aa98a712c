package etcd

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// keyspace names the keys of one namespace:
//
//	<namespace><queue>/<lease>-<seq>     a ticket; both numbers in hex
//	<namespace>!evict/<lease>/<number>   asks the owner of a lease to evict a ticket
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

func (n keyspace) eviction(lease clientv3.LeaseID, number uint64) string {
	return fmt.Sprintf("%s!evict/%x/%d", n, lease, number)
}

// evicted returns the number of the ticket that the owner of a lease is asked to evict. An
// unreadable one is 0, which no ticket has.
func (n keyspace) evicted(key string, lease clientv3.LeaseID) (number uint64, ok bool) {
	text, ok := strings.CutPrefix(key, fmt.Sprintf("%s!evict/%x/", n, lease))
	number, _ = strconv.ParseUint(text, 10, 64)
	return number, ok
}

func (n keyspace) pause(name string) string { return string(n) + "!pause/" + url.PathEscape(name) }

// paused returns the name that a pause's key is for.
func (n keyspace) paused(key string) (name string, ok bool) {
	escaped, ok := strings.CutPrefix(key, string(n)+"!pause/")
	name, err := url.PathUnescape(escaped)
	return name, ok && err == nil
}

func (n keyspace) session(lease clientv3.LeaseID) string {
	return fmt.Sprintf("%s!session/%x", n, lease)
}

// record is the value of a ticket's key: the facts that other processes need, and those
// that people want to know.
type record struct {
	Owner  string    `json:"owner"`
	Client string    `json:"client,omitempty"`
	Since  time.Time `json:"since"` // of the arrival, by the owner's clock; for people only
	Shared bool      `json:"shared,omitempty"`
	Limit  int       `json:"limit,omitempty"`
	Inside bool      `json:"inside,omitempty"` // set only while the queue is paused
}

// recordOf is the value for a ticket of this process.
func recordOf(t *serializer.Ticket, inside bool) string {
	r := record{Owner: t.Owner.Name, Since: t.Arrived.UTC(), Shared: t.Rule.Shared, Limit: t.Rule.Limit, Inside: inside}
	if t.Client.IsValid() {
		r.Client = t.Client.String()
	}
	text, _ := json.Marshal(r) // texts, numbers and a time of this century always marshal
	return string(text)
}

// parseRecord parses a value. An unreadable ticket counts as exclusive: under that rule,
// nobody enters too early.
func parseRecord(value []byte) (r record) {
	if json.Unmarshal(value, &r) != nil {
		return record{Owner: "unknown"}
	}
	return r
}

// remoteTicket makes the ticket of another process. A key without a lease is an
// operator's, and no process takes it out.
func remoteTicket(k ticketKey, kv *mvccpb.KeyValue) *serializer.Ticket {
	r := parseRecord(kv.Value)
	t := &serializer.Ticket{
		Queue:   k.queue,
		Number:  k.number(kv.CreateRevision),
		Arrived: r.Since,
		Owner:   &serializer.Owner{Name: r.Owner, Alive: kv.Lease != 0},
		Key:     string(kv.Key),
	}
	t.Rule = serializer.Rule{Shared: r.Shared, Limit: r.Limit}
	t.Client, _ = netip.ParseAddrPort(r.Client)
	return t
}
