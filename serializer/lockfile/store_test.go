//go:build unix && !aix && !solaris

package lockfile

import (
	"path/filepath"
	"sync"
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

// Bug: while one process discarded the directory of a rejected configuration, another process
// could not open it: the directory was gone before its guard was made.
func TestOpenWhileOthersDiscard(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queues", "new")
	var discarding sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		discarding.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := Open(path, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				s.Discard()
				_ = s.Close()
			}
		})
	}
	for range 100 {
		s, err := Open(path, Options{})
		if err != nil {
			t.Error(err)
			break
		}
		s.Discard()
		_ = s.Close()
	}
	close(stop)
	discarding.Wait()
}

// Bug: a second engine took the reports of the first, whose callers waited for ever.
func TestSecondEngine(t *testing.T) {
	store := openStore(t, t.TempDir())
	defer serializer.New(store, serializer.Options{}).Close()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	serializer.New(store, serializer.Options{})
}
