package etcd

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// keyspace names the keys of one namespace:
//
//	<namespace><queue>/<lease>-<seq>          a ticket; the lease in hex
//	<namespace>!left/<queue>/<lease>-<seq>    says how the last ticket of that key ended; see mark
//	<namespace>!evict/<lease>/<token>         asks the owner of a lease to evict a ticket
//	<namespace>!pause/<queue>                 pauses a queue, or a group of queues
//
// The queue's name is URL-escaped as one segment, so it holds neither a slash
// nor an exclamation mark, and no queue's keys lie among another's.
type keyspace string

const (
	evictions = "!evict/"
	marks     = "!left/"
	pauses    = "!pause/"
	probe     = "!probe" // never exists
)

// queue returns the prefix of a queue's tickets.
func (n keyspace) queue(queue string) string { return string(n) + url.PathEscape(queue) + "/" }

// tickets returns the prefix of a queue's tickets that belong to a lease.
func (n keyspace) tickets(queue string, lease int64) string {
	return fmt.Sprintf("%s%x-", n.queue(queue), lease)
}

// ticket returns the key of one ticket.
func (n keyspace) ticket(queue string, lease int64, seq uint64) string {
	return n.tickets(queue, lease) + strconv.FormatUint(seq, 10)
}

// evictions returns the prefix of the keys that ask a lease's owner for evictions.
func (n keyspace) evictions(lease int64) string {
	return fmt.Sprintf("%s%s%x/", n, evictions, lease)
}

// mark returns the key that says how a ticket ended.
func (n keyspace) mark(ticket string) string { return string(n) + marks + ticket[len(n):] }

// marked returns the key of the ticket that a mark belongs to.
func (n keyspace) marked(mark string) string { return string(n) + mark[len(n)+len(marks):] }

// marks returns the prefix of all marks of a lease in a queue.
func (n keyspace) marks(queue string, lease int64) string { return n.mark(n.tickets(queue, lease)) }

// parseTicket parses the key of a ticket. ok is false for keys of other forms.
func (n keyspace) parseTicket(key string) (queue string, lease int64, ok bool) {
	rest, ok := strings.CutPrefix(key, string(n))
	escaped, name, _ := strings.Cut(rest, "/")
	hex, seq, _ := strings.Cut(name, "-")
	queue, queueErr := url.PathUnescape(escaped)
	lease, leaseErr := strconv.ParseInt(hex, 16, 64)
	_, seqErr := strconv.ParseUint(seq, 10, 64)
	ok = ok && queueErr == nil && leaseErr == nil && seqErr == nil && url.PathEscape(queue) == escaped
	return queue, lease, ok
}

// record is the value of a ticket's key: the facts that other processes need, and those
// that people want to know.
type record struct {
	Owner  string    `json:"owner"`
	Client string    `json:"client,omitempty"`
	Since  time.Time `json:"since"` // of the arrival, by the owner's clock; for people only
	Shared bool      `json:"shared,omitempty"`
	Limit  int       `json:"limit,omitempty"`
	Group  string    `json:"group,omitempty"`
	Max    int       `json:"max,omitempty"`    // its owner gives it up if that many wait ahead of it
	Inside bool      `json:"inside,omitempty"` // set only while the queue is paused
}

func newRecord(owner string, a serializer.Arrival, now time.Time) string {
	r := record{Owner: owner, Since: now.UTC(), Shared: a.Rule.Shared, Limit: a.Rule.Limit, Group: a.Group}
	if !a.DropOldest {
		r.Max = a.MaxWaiting
	}
	if a.Client != (netip.AddrPort{}) {
		r.Client = a.Client.String()
	}
	return r.text()
}

func (r record) text() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // texts, numbers and a time of this century always marshal
	}
	return string(text)
}

// parseRecord parses a value. An unreadable ticket counts as exclusive: under that rule,
// nobody enters too early.
func parseRecord(value []byte) record {
	var r record
	if json.Unmarshal(value, &r) != nil {
		return record{Owner: "unknown"}
	}
	return r
}

func (r record) rule() serializer.Rule { return serializer.Rule{Shared: r.Shared, Limit: r.Limit} }

// self names this process for people.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("pid %d on %s", os.Getpid(), host)
}
