// Package etcd keeps the tickets of [serializer] in an etcd cluster, so that callers on
// many machines enter one after another, in order of arrival.
//
// docs/libraries.md has a whole program, on another store of the kind. The package does not
// depend on Caddy. The Go module caddy-orderly/modules/etcd makes it an engine of the Caddy
// plugin.
package etcd

import (
	"sync/atomic"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Store keeps tickets in an etcd cluster, for any number of machines.
//
// # How it works
//
// A ticket is a key. One transaction puts the keys of all callers that have arrived, and
// deletes those of callers that have left. etcd orders all transactions, and keeps with each
// key the revision of its transaction. That and the place in the transaction are the
// ticket's number. No clock is involved.
//
// One watch shows the whole namespace in the order of revisions, and is the only source of
// events. Own tickets are reported when the watch shows them, too. By then, all smaller ones
// were reported. A watch that is lost, or of a silent member, is begun again at another
// member, and a read of the namespace follows. In the meantime, nothing is reported, which
// is safe: only the end of other tickets is missed.
//
// All keys of a process belong to its lease. The process gives the lease up before etcd
// ends it; see package lease. It does so, too, if etcd refuses writes, because it could not
// delete its tickets, or if etcd continues from a backup.
//
// The first process puts a key with a random text. A process that has had a session begins none
// where that text is missing or another one, such as in an empty cluster at the same endpoints:
// others may be inside in the old one.
//
// # What was rejected
//
//   - concurrency.Mutex of clientv3: its key is the lease, so two requests of one process
//     both hold it. And its watches begin in the past, which etcd serves every 100 ms.
//   - Watching only the ticket ahead: fewer events, but reads of the queue, marks, and an
//     admission of its own.
//   - Much of clientv3; see member.
//
// # What remains imperfect
//
//   - A request without an answer may be carried out much later, and make a ticket again
//     that was used. Other processes wait for it until its owner has seen and deleted it.
//   - A leader of etcd that was cut off can still answer keep-alives until it notices. The
//     margin should exceed etcd's election timeout (1 s), so a time to live below 5 s relies
//     on the token.
//   - After a restore, a holder may not be alone until its process has noticed.
type Store struct {
	*lease.Store
	keys    keyspace
	cluster *cluster
	history atomic.Pointer[string] // its text in the last session; nil before the first
}
