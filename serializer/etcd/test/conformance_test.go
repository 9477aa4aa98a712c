package test

import (
	"fmt"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

// Stores on one cluster behave like processes on several machines.
func TestStoreConforms(t *testing.T) {
	m := testetcd.Start(t)
	spaces := 0
	storetest.Run(t, storetest.Options{}, func(t testing.TB, n int) (stores []serializer.Store) {
		spaces++
		for range n {
			s, err := etcd.Open(etcd.Options{Endpoints: []string{m.URL}, Namespace: fmt.Sprintf("space%d/", spaces)})
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, s)
		}
		return stores
	})
}
