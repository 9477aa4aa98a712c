//go:build unix && !aix && !solaris

package lockfile

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Options{}, func(t testing.TB, n int) []serializer.Store {
		path := t.TempDir()
		stores := make([]serializer.Store, n)
		for i := range stores {
			stores[i] = openStore(t, path)
		}
		return stores
	})
}
