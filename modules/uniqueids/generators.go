package uniqueids

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// openGenerators sets up all kinds of IDs. Their counters belong to the process, not to the
// handler. Two counters with the same node would make the same IDs, and so would a new one
// after a reload.
func (u *Handler) openGenerators(ctx caddy.Context) (err error) {
	u.storage, u.byPlaceholder = ctx.Storage(), make(map[string]newID)
	for _, kind := range kinds {
		if u.byPlaceholder[kind.placeholder], err = kind.open(u); err != nil {
			return err
		}
	}
	return nil
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
	key := u.Layout + " " + node.String()
	if node.Random() { // the bits drawn first stand for this process
		key = u.Layout + " " + nodeRandom
	}
	g, err := uniqueid.NewUniqueIDGenerator(layout, node)
	if err != nil {
		return nil, err
	}
	first, again := uniqueIDGenerators.LoadOrStore(key, g)
	if reason != "" && !again {
		u.logger.Info("unique_id carries random bits in place of address and process ID", zap.String("reason", reason))
	}
	g = first.(*uniqueid.UniqueIDGenerator)
	return func(ids *requestIDs) (string, error) { return g.New(ids.arrival()).String(), nil }, nil
}

// resolveTimeout bounds the lookup of the host's own name.
const resolveTimeout = 5 * time.Second

// autoNode looks the host's name up once for the process: a name server may be silent.
var autoNode = sync.OnceValues(func() (node uniqueid.Node, reason string) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	return uniqueid.AutoNode(ctx)
})

// nodeOf returns the node of a setting that checkNode has let pass. If auto becomes random,
// reason says why.
func nodeOf(setting string) (node uniqueid.Node, reason string) {
	switch setting {
	case nodeRandom:
		return uniqueid.RandomNode(), ""
	case nodeAuto:
		return autoNode()
	}
	node, _ = uniqueid.FixedNode(netip.MustParseAddr(setting), uint32(os.Getpid()))
	return node, ""
}
