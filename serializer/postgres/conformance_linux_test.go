package postgres

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

// The suite for all stores, with connections to the server, and through a pooler, where
// nobody is notified. Bug: where transactions are serializable by default, no session began.
func TestStoreConforms(t *testing.T) {
	t.Parallel()
	server := testpostgres.Start(t, "default_transaction_isolation=serializable")
	for name, url := range map[string]string{
		"direct": server.URL(),
		"pooled": testpostgres.StartPooler(t, server.Addr).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var namespaces atomic.Int64
			storetest.Run(t, storetest.Options{}, func(t testing.TB, n int) (stores []serializer.Store) {
				namespace := fmt.Sprintf("%s_%d", name, namespaces.Add(1))
				for range n {
					store, err := Open(Options{URL: url, Namespace: namespace, Log: slog.New(slog.NewTextHandler(logOf(t), nil))})
					if err != nil {
						t.Fatal(err)
					}
					stores = append(stores, store)
				}
				return stores
			})
		})
	}
}
