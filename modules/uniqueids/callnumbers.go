package uniqueids

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/modules/uniqueids/internal/storedruns"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// callNumberPool holds the generators of call numbers, by storage. They outlive
// configurations, so that a reload does not use up a run.
var callNumberPool = caddy.NewUsagePool()

// callNumbers makes call numbers from the run numbers of one storage. Each configuration
// has the storage as a value of its own; a run is taken with that of the last request.
type callNumbers struct {
	*uniqueid.CallNumberGenerator
	storage atomic.Pointer[certmagic.Storage]
}

func newCallNumbers() *callNumbers {
	c := new(callNumbers)
	c.CallNumberGenerator = uniqueid.NewCallNumberGenerator(c)
	return c
}

// openCallNumbers takes a generator out of the pool, where it has a key.
func openCallNumbers(storage certmagic.Storage) (_ newID, key string) {
	key = fmt.Sprintf("%T %p", storage, storage) // which at worst uses up a run at each reload
	if named, ok := storage.(fmt.Stringer); ok {
		key = fmt.Sprintf("%T %s", storage, named)
	}
	value, _, _ := callNumberPool.LoadOrNew(key, func() (caddy.Destructor, error) { return newCallNumbers(), nil })
	return value.(*callNumbers).from(storage), key
}

// from makes call numbers for the handlers of a configuration with this storage.
func (c *callNumbers) from(storage certmagic.Storage) newID {
	return func(ctx context.Context, _ time.Time) (string, error) {
		c.storage.Store(&storage)
		number, err := c.New(ctx)
		if err != nil {
			return "", err
		}
		return number.String(), nil
	}
}

// NextRun implements [uniqueid.RunStore].
func (c *callNumbers) NextRun(ctx context.Context) (uint32, error) {
	return storedruns.Next(ctx, *c.storage.Load())
}

// Destruct implements [caddy.Destructor].
func (c *callNumbers) Destruct() error {
	c.Close()
	return nil
}
