package uniqueids

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/modules/uniqueids/internal/runstorage"
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

// openCallNumbers takes the generator of the handler's storage out of the pool.
func openCallNumbers(u *Handler) (newID, error) {
	u.storageKey = fmt.Sprintf("%T %p", u.storage, u.storage) // which at worst uses up a run at each reload
	if named, ok := u.storage.(fmt.Stringer); ok {
		u.storageKey = fmt.Sprintf("%T %s", u.storage, named)
	}
	value, _, _ := callNumberPool.LoadOrNew(u.storageKey, func() (caddy.Destructor, error) {
		c := new(callNumbers)
		c.CallNumberGenerator = uniqueid.Must(uniqueid.NewCallNumberGenerator(c))
		return c, nil
	})
	c, storage := value.(*callNumbers), u.storage // a pointer into the handler would keep its whole configuration
	return func(ids *requestIDs) (string, error) {
		c.storage.Store(&storage)
		number, err := c.New(ids.ctx)
		if err != nil {
			return "", err
		}
		return number.String(), nil
	}, nil
}

// NextRun implements [uniqueid.RunStore].
func (c *callNumbers) NextRun(ctx context.Context) (uint32, error) {
	return runstorage.Next(ctx, *c.storage.Load())
}

// Destruct implements [caddy.Destructor].
func (c *callNumbers) Destruct() error {
	c.Close()
	return nil
}
