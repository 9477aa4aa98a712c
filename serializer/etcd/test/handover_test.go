package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testhandover"
)

// How long nobody is inside while others wait, beside a put and concurrency.Mutex, on one
// member whose disk is this machine's. If each client holds for a while, the others have their
// tickets and wait. Without a hold, the machine is busy with tickets, and the rate is what counts.
func BenchmarkHandOver(b *testing.B) {
	const clients = 8
	m := testetcd.Start(b)
	c := m.Client(b)
	var locks []*concurrency.Mutex // each needs a session of its own
	for range clients {
		session, err := concurrency.NewSession(m.Client(b))
		testlease.Must(b, err)
		defer session.Close()
		locks = append(locks, concurrency.NewMutex(session, "mutex/"))
	}
	for _, hold := range []time.Duration{0, 5 * time.Millisecond} {
		testhandover.Run(b, fmt.Sprintf("hold=%s/put", hold), 1, hold, func(ctx context.Context, _ int) (func(), error) {
			return func() {}, testlease.Second(c.Put(ctx, "put/key", "value"))
		})
		testhandover.Run(b, fmt.Sprintf("hold=%s/mutex", hold), clients, hold, func(ctx context.Context, i int) (func(), error) {
			return func() { _ = locks[i].Unlock(context.Background()) }, locks[i].Lock(ctx)
		})
		for _, processes := range []int{1, clients} {
			var engines []*testlease.Engine
			for range processes {
				engines = append(engines, open(b, etcd.Options{}, m.URL))
			}
			testhandover.Run(b, fmt.Sprintf("hold=%s/processes=%d", hold, processes), clients, hold, func(ctx context.Context, i int) (func(), error) {
				return testhandover.Enter(ctx, engines[i%processes].Engine, arrival("a_"))
			})
		}
	}
}
