// Package etcd keeps the queues of [serializer] in an etcd cluster, so that callers on
// many machines enter one after another, in order of arrival.
//
//	e, err := etcd.Open(etcd.Options{Endpoints: []string{"http://10.0.0.1:2379"}})
//	turn, err := e.Enter(ctx, serializer.Arrival{Queue: "reports"})
//	defer turn.Leave()
//
// It does not depend on Caddy. The Go module caddy-orderly/modules/etcd makes it an
// engine of the Caddy plugin.
package etcd
