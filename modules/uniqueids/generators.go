package uniqueids

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// generators make the IDs of one handler. Their counters belong to the process, not to
// the handler. Two counters with the same node would make the same IDs, and so would a
// new one after a reload.
type generators struct {
	byPlaceholder map[string]*generator
	detach        func() error
	warnOfFirst   sync.Once
}

// generator makes the IDs of one kind.
type generator struct {
	scheme   string
	generate uniqueid.Generate
}

func openGenerators(ctx caddy.Context, u *Handler) (*generators, error) {
	callNumbers, detach, err := openCallNumbers(ctx.Storage())
	if err != nil {
		return nil, err
	}
	byPlaceholder, err := generatorsOf(uniqueid.Setup{
		UniqueIDs:   func() (*uniqueid.UniqueIDGenerator, error) { return uniqueIDsOf(ctx, u) },
		Shards:      u.Shards,
		CallNumbers: func() (*uniqueid.CallNumberGenerator, error) { return callNumbers, nil },
	})
	if err != nil {
		return nil, errors.Join(err, detach())
	}
	return &generators{byPlaceholder: byPlaceholder, detach: detach}, nil
}

// generatorsOf returns generators of all kinds but the notations of the txid, by
// placeholder.
func generatorsOf(setup uniqueid.Setup) (map[string]*generator, error) {
	all := make(map[string]*generator)
	for _, kind := range uniqueid.Kinds() {
		if kind.New == nil || slices.Contains(txidNotations, kind.Scheme) {
			continue
		}
		generate, err := kind.New(setup)
		if err != nil {
			return nil, err
		}
		all[placeholder(kind.Scheme)] = &generator{kind.Scheme, generate}
	}
	return all, nil
}

// placeholder returns the placeholder for the IDs of a scheme, without braces. The one
// for unique_id is named after Apache's variable.
func placeholder(scheme string) string {
	if scheme == "unique_id" {
		return scheme
	}
	return "http.request." + scheme
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
var uniqueIDGenerators = generatorTable{all: make(map[string]*uniqueid.UniqueIDGenerator)}

type generatorTable struct {
	mu  sync.Mutex
	all map[string]*uniqueid.UniqueIDGenerator
}

// get returns the generator with a given key, which it makes if there is none.
func (t *generatorTable) get(key string, layout uniqueid.Layout, node uniqueid.Node) (*uniqueid.UniqueIDGenerator, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.all[key]; g != nil {
		return g, nil
	}
	g, err := uniqueid.NewUniqueIDGenerator(layout, node)
	if err != nil {
		return nil, fmt.Errorf("setting up unique_id: %w", err)
	}
	t.all[key] = g
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
	return uniqueIDGenerators.get(key, layout, node)
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
