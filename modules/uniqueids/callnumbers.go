package uniqueids

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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
func openCallNumbers(storage certmagic.Storage) (_ newID, detach func() error, err error) {
	key := storageKey(storage)
	value, _, err := callNumberPool.LoadOrNew(key, func() (caddy.Destructor, error) { return newCallNumbers(), nil })
	if err != nil {
		return nil, nil, fmt.Errorf("setting up call numbers: %w", err)
	}
	c := value.(*callNumbers)
	remove := c.add(storage)
	return c.newID, func() error {
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
	c.storages = append(slices.Clip(c.storages), entry)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.storages = slices.DeleteFunc(slices.Clone(c.storages), func(other *certmagic.Storage) bool { return other == entry })
	}
}

// NextRun implements [uniqueid.RunStore].
func (c *callNumbers) NextRun(ctx context.Context) (uint32, error) {
	c.mu.Lock()
	storages := c.storages
	c.mu.Unlock()
	if len(storages) == 0 {
		return 0, errors.New("no configuration that uses unique_ids is loaded")
	}
	return storedruns.Next(ctx, *storages[len(storages)-1])
}

func (c *callNumbers) newID(ctx context.Context, _ time.Time) (string, error) {
	number, err := c.New(ctx)
	if err != nil {
		return "", err
	}
	return number.String(), nil
}
