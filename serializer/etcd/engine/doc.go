// Package engine keeps the queues of [serializer] in etcd, so that callers on
// many machines enter one after the other, in the order they came.
//
// It knows nothing of Caddy. The package above it makes it a module of Caddy.
//
//	e, err := engine.Open(engine.Options{Endpoints: []string{"http://10.0.0.1:2379"}})
//	turn, err := e.Enter(ctx, serializer.Arrival{Queue: "reports"})
//	defer turn.Leave()
package engine
