package uniqueids

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/storedruns"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// generators are the generators of one handler. They belong to the process, not
// to the handler: two generators of the same node would make the same IDs, and
// so would a new one after a reload.
type generators struct {
	uniqueIDs   *uniqueid.UniqueIDGenerator
	callNumbers *callNumbers
	detach      func() error
	warnOfFirst sync.Once
}

func openGenerators(ctx caddy.Context, u *Handler) (*generators, error) {
	uniqueIDs, err := uniqueIDsOf(ctx, u)
	if err != nil {
		return nil, err
	}
	callNumbers, detach, err := openCallNumbers(ctx.Storage())
	if err != nil {
		return nil, err
	}
	return &generators{uniqueIDs: uniqueIDs, callNumbers: callNumbers, detach: detach}, nil
}

func (m *generators) close() error { return m.detach() }

// uniqueIDGenerators are the generators of unique_id in this process, by layout
// and node as configured. There are as many as configurations have named, and
// they are never given up: another of the same node could repeat their IDs.
var uniqueIDGenerators = struct {
	sync.Mutex
	all map[string]*uniqueid.UniqueIDGenerator
}{all: make(map[string]*uniqueid.UniqueIDGenerator)}

func uniqueIDsOf(ctx caddy.Context, u *Handler) (*uniqueid.UniqueIDGenerator, error) {
	uniqueIDGenerators.Lock()
	defer uniqueIDGenerators.Unlock()
	layout, err := uniqueid.ParseLayout(u.Layout)
	if err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	node, reason, err := nodeOf(ctx, u.Node)
	if err != nil {
		return nil, err
	}
	key := u.Layout + " " + node.String()
	if u.Node == nodeRandom || reason != "" {
		key = u.Layout + " " + nodeRandom // the bits drawn first stand for this process
	}
	if reason != "" && layout != uniqueid.Modern {
		u.logger.Info("unique_id carries random bits in place of address and process ID", zap.String("reason", reason))
	}
	if g := uniqueIDGenerators.all[key]; g != nil {
		return g, nil
	}
	g, err := uniqueid.NewUniqueIDGenerator(layout, node)
	if err != nil {
		return nil, fmt.Errorf("setting up unique_id: %w", err)
	}
	uniqueIDGenerators.all[key] = g
	return g, nil
}

// resolveTimeout bounds the look-up of the host's own name.
const resolveTimeout = 5 * time.Second

func nodeOf(ctx context.Context, text string) (node uniqueid.Node, reason string, err error) {
	switch text {
	case nodeRandom:
		return uniqueid.RandomNode(), "", nil
	case nodeAuto:
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		node, reason = uniqueid.AutoNode(uniqueid.ThisMachine(ctx))
		return node, reason, nil
	}
	addr, err := netip.ParseAddr(text)
	if err == nil {
		node, err = uniqueid.FixedNode(addr, uint32(os.Getpid()))
	}
	if err != nil {
		return node, "", fmt.Errorf("node %q: %w", text, err)
	}
	return node, "", nil
}

// shardedIDs makes the sharded IDs of all handlers, whatever their number of
// shards, for no microsecond may be given twice in a process.
var shardedIDs = sync.OnceValues(func() (*uniqueid.ShardedIDGenerator, error) { return uniqueid.NewShardedIDGenerator(1) })

func newShardedID(shards int) string {
	g, err := shardedIDs()
	if err != nil {
		return "" // one shard is never refused
	}
	id := g.New()
	if shards != 1 {
		id, err = uniqueid.MakeShardedID(id.Time(), id.Random(), shards)
	}
	if err != nil {
		return "" // the number was checked when the configuration was loaded
	}
	return id.String()
}

// callNumberPool holds the makers of call numbers, by storage.
var callNumberPool = caddy.NewUsagePool()

// callNumbers makes call numbers from the run numbers of one storage. It
// outlives configurations, so that a reload does not cost a run.
type callNumbers struct {
	*uniqueid.CallNumberGenerator
	runs *storedRuns

	mu         sync.Mutex
	complained time.Time
	unlogged   int
}

// openCallNumbers takes a maker out of the pool. detach gives it back.
func openCallNumbers(storage certmagic.Storage) (_ *callNumbers, detach func() error, err error) {
	key := storageKey(storage)
	value, _, err := callNumberPool.LoadOrNew(key, func() (caddy.Destructor, error) {
		runs := new(storedRuns)
		return &callNumbers{runs: runs, CallNumberGenerator: uniqueid.NewCallNumberGenerator(runs)}, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("setting up call numbers: %w", err)
	}
	c := value.(*callNumbers)
	remove := c.runs.add(storage)
	return c, func() error {
		remove()
		_, err := callNumberPool.Delete(key)
		return err
	}, nil
}

// storageKey names what a storage stores in. One that does not say is taken
// for a storage of its own, which at worst costs a run at each reload.
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

// complain logs, at most once a second, why requests get no call number.
func (c *callNumbers) complain(logger *zap.Logger, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlogged++
	if time.Since(c.complained) < time.Second {
		return
	}
	logger.Error("requests get no call number", zap.Int("count", c.unlogged), zap.Error(err))
	c.complained, c.unlogged = time.Now(), 0
}

// storedRuns hands out run numbers from Caddy's storage. The storage is the one
// of the youngest configuration that is still in use.
type storedRuns struct {
	mu       sync.Mutex
	storages []*certmagic.Storage
}

// add makes a storage the one in use, until remove is called.
func (s *storedRuns) add(storage certmagic.Storage) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := &storage
	s.storages = append(s.storages, entry)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, other := range s.storages {
			if other == entry {
				s.storages = append(s.storages[:i:i], s.storages[i+1:]...)
				return
			}
		}
	}
}

func (s *storedRuns) storage() (certmagic.Storage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.storages) == 0 {
		return nil, errors.New("no configuration that uses unique_ids is loaded")
	}
	return *s.storages[len(s.storages)-1], nil
}

// NextRun implements [uniqueid.RunStore].
func (s *storedRuns) NextRun(ctx context.Context) (uint32, error) {
	storage, err := s.storage()
	if err != nil {
		return 0, err
	}
	return storedruns.Next(ctx, storage)
}
