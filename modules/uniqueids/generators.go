package uniqueids

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// generators make the IDs of one handler, except the txid and its notations. Their counters
// belong to the process, not to the handler. Two counters with the same node would make the
// same IDs, and so would a new one after a reload.
type generators struct {
	byPlaceholder map[string]*generator
	detach        func() error
	warnOfFirst   sync.Once
}

// generator makes the IDs of one scheme.
type generator struct {
	scheme string
	// new makes an ID for a request that arrived at the given time, and returns its text.
	new func(ctx context.Context, arrival time.Time) (string, error)
}

func openGenerators(ctx caddy.Context, u *Handler) (*generators, error) {
	uniqueIDs, err := uniqueIDsOf(ctx, u)
	if err != nil {
		return nil, err
	}
	shardedIDs, err := uniqueid.NewShardedIDGenerator(u.Shards)
	if err != nil {
		return nil, err
	}
	callNumbers, detach, err := openCallNumbers(ctx.Storage())
	if err != nil {
		return nil, err
	}
	return &generators{
		byPlaceholder: map[string]*generator{
			"unique_id": {"unique_id", func(_ context.Context, arrival time.Time) (string, error) {
				return uniqueIDs.New(arrival).String(), nil
			}},
			"http.request.sharded_id": {"sharded_id", func(context.Context, time.Time) (string, error) {
				return shardedIDs.New().String(), nil
			}},
			"http.request.call_number": {"call_number", func(ctx context.Context, _ time.Time) (string, error) {
				return newCallNumber(ctx, callNumbers)
			}},
		},
		detach: detach,
	}, nil
}

func newCallNumber(ctx context.Context, g *uniqueid.CallNumberGenerator) (string, error) {
	number, err := g.New(ctx)
	if err != nil {
		return "", err
	}
	return number.String(), nil
}

// failures throttles the log entries of each scheme, for all handlers together.
var failures throttle.Throttle[string]

// logFailure logs why requests get no ID.
func (g *generator) logFailure(logger *zap.Logger, err error) {
	if count, ok := failures.Allow(g.scheme); ok {
		logger.Error("requests get no "+strings.ReplaceAll(g.scheme, "_", " "), zap.Int("count", count), zap.Error(err))
	}
}

// uniqueIDGenerators are the generators of unique_id in this process, by configured
// layout and node. There are as many as configurations have named. They are never
// released: a new one with the same node could repeat their IDs.
var uniqueIDGenerators struct {
	mu  sync.Mutex
	all map[string]*uniqueid.UniqueIDGenerator
}

// uniqueIDGenerator returns the generator with a given key, which it makes if there is
// none.
func uniqueIDGenerator(key string, layout uniqueid.Layout, node uniqueid.Node) (*uniqueid.UniqueIDGenerator, error) {
	table := &uniqueIDGenerators
	table.mu.Lock()
	defer table.mu.Unlock()
	if g := table.all[key]; g != nil {
		return g, nil
	}
	g, err := uniqueid.NewUniqueIDGenerator(layout, node)
	if err != nil {
		return nil, fmt.Errorf("setting up unique_id: %w", err)
	}
	if table.all == nil {
		table.all = make(map[string]*uniqueid.UniqueIDGenerator)
	}
	table.all[key] = g
	return g, nil
}

func uniqueIDsOf(ctx caddy.Context, u *Handler) (*uniqueid.UniqueIDGenerator, error) {
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
	return uniqueIDGenerator(key, layout, node)
}

// resolveTimeout bounds the lookup of the host's own name.
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
