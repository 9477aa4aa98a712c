package uniqueids

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/uniqueids/internal/runstorage"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// A kind is one kind of IDs, as requests and the command ids know it. How its texts are
// read is in the table of uniqueid.Decode.
type kind struct {
	scheme, placeholder string
	ofTrace             bool // Caddy's tracing determines them, if it is on; the command makes none
	// open sets up what makes the IDs for a handler. Counters belong to the process, not to the
	// handler. Two counters with the same node would make the same IDs, and so would a new one
	// after a reload.
	open func(*Handler) (newID, error)
}

// newID makes an ID for a request, and returns its text.
type newID func(*requestIDs) (string, error)

// kinds are all kinds of IDs, that of the command's default first.
var kinds = []kind{
	{"txid", "http.request.txid", false, each((*requestIDs).TXID)},
	{"unique_id", "unique_id", false, openUniqueIDs},
	{"sharded_id", "http.request.sharded_id", false, each((*requestIDs).shardedID)},
	{"call_number", "http.request.call_number", false, openCallNumbers},
	{"uuid_v7", "http.request.uuid_v7", false, each(func(ids *requestIDs) string { return ids.UUIDv7().String() })},
	{"trace_id", "http.request.trace_id", true, each(func(ids *requestIDs) string { return ids.Trace().TraceID.String() })},
	{"traceparent", "http.request.traceparent", true, each(func(ids *requestIDs) string { return ids.Trace().String() })},
}

// each opens a kind that needs nothing but the request, and cannot fail.
func each(of func(*requestIDs) string) func(*Handler) (newID, error) {
	return func(*Handler) (newID, error) {
		return func(ids *requestIDs) (string, error) { return of(ids), nil }, nil
	}
}

// shardedID makes a sharded_id for as many shards as the settings have let pass.
func (ids *requestIDs) shardedID() string {
	return uniqueid.Must(uniqueid.NewShardedID(ids.handler.Shards)).String()
}

// uniqueIDGenerators are the generators of unique_id in this process, by configured
// layout and node. There are as many as configurations have named. They are never
// released: a new one with the same node could repeat their IDs.
var uniqueIDGenerators sync.Map

func openUniqueIDs(u *Handler) (newID, error) {
	layout, err := uniqueid.ParseLayout(u.Layout)
	if err != nil {
		return nil, err
	}
	setting := u.Node
	if layout == uniqueid.Modern { // it has no node
		setting = nodeRandom
	}
	node, reason := nodeOf(setting)
	g, err := uniqueid.NewUniqueIDGenerator(layout, node)
	if err != nil {
		return nil, err
	}
	first, again := uniqueIDGenerators.LoadOrStore(u.Layout+" "+node.String(), g)
	if reason != "" && !again {
		u.logger.Info("unique_id carries random bits in place of address and process ID", zap.String("reason", reason))
	}
	g = first.(*uniqueid.UniqueIDGenerator)
	return func(ids *requestIDs) (string, error) { return g.New(ids.arrival()).String(), nil }, nil
}

// nodeOf returns the node of a setting that checkNode has let pass. If auto becomes random,
// reason says why.
func nodeOf(setting string) (node uniqueid.Node, reason string) {
	switch setting {
	case nodeRandom:
		return randomNode(), ""
	case nodeAuto:
		return autoNode()
	}
	node, _ = uniqueid.FixedNode(netip.MustParseAddr(setting), uint32(os.Getpid()))
	return node, ""
}

// randomNode draws the bits that stand for the process.
var randomNode = sync.OnceValue(uniqueid.RandomNode)

// resolveTimeout bounds the lookup of the host's own name.
const resolveTimeout = 5 * time.Second

// autoNode looks the host's name up once for the process: a name server may be silent.
var autoNode = sync.OnceValues(func() (uniqueid.Node, string) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	return uniqueid.AutoNode(ctx)
})

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
