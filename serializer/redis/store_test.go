package redis

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	storetest.Run(t, storetest.Options{}, func(t testing.TB, n int) (stores []serializer.Store) {
		for range n {
			stores = append(stores, openStore(t, Options{Namespace: t.Name(), TTL: 2 * time.Second}, s.address))
		}
		return stores
	})
}
