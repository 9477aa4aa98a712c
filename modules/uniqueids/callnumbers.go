package uniqueids

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/modules/uniqueids/internal/storedruns"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// callNumberPool holds the generators of call numbers, by storage. They outlive
// configurations, so that a reload does not use up a run.
var callNumberPool = caddy.NewUsagePool()

// callNumbers makes call numbers from the run numbers of one storage. It uses the storage
// of the newest configuration that is still in use.
type callNumbers struct {
	*uniqueid.CallNumberGenerator

	mu       sync.Mutex
	storages []*certmagic.Storage
}

func newCallNumbers() *callNumbers {
	c := new(callNumbers)
	c.CallNumberGenerator = uniqueid.NewCallNumberGenerator(c)
	return c
}

// openCallNumbers takes a generator out of the pool. detach releases it.
func openCallNumbers(storage certmagic.Storage) (_ *uniqueid.CallNumberGenerator, detach func() error, err error) {
	key := storageKey(storage)
	value, _, err := callNumberPool.LoadOrNew(key, func() (caddy.Destructor, error) { return newCallNumbers(), nil })
	if err != nil {
		return nil, nil, fmt.Errorf("setting up call numbers: %w", err)
	}
	c := value.(*callNumbers)
	remove := c.add(storage)
	return c.CallNumberGenerator, func() error {
		remove()
		_, err := callNumberPool.Delete(key)
		return err
	}, nil
}

// storageKey identifies where a storage stores its data. A storage without a description
// counts as a separate one, which at worst uses up a run at each reload.
func storageKey(storage certmagic.Storage) string {
	if named, ok := storage.(fmt.Stringer); ok {
		return fmt.Sprintf("%T %s", storage, named)
	}
	return fmt.Sprintf("%T %p", storage, storage)
}

// Destruct implements [caddy.Destructor].
func (c *callNumbers) Destruct() error {
	c.Close()
	return nil
}

// add makes a storage the current one, until remove is called.
func (c *callNumbers) add(storage certmagic.Storage) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := &storage
	c.storages = append(c.storages, entry)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.storages = slices.DeleteFunc(c.storages, func(other *certmagic.Storage) bool { return other == entry })
	}
}

func (c *callNumbers) storage() (certmagic.Storage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.storages) == 0 {
		return nil, errors.New("no configuration that uses unique_ids is loaded")
	}
	return *c.storages[len(c.storages)-1], nil
}

// NextRun implements [uniqueid.RunStore].
func (c *callNumbers) NextRun(ctx context.Context) (uint32, error) {
	storage, err := c.storage()
	if err != nil {
		return 0, err
	}
	return storedruns.Next(ctx, storage)
}
