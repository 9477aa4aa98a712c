// Package configuration knows the handlers of one configuration while Caddy provisions
// them. It checks whether they agree about their queues, and in which order requests come
// to these.
package configuration

import (
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/routes"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Member is what a handler says of its queue. A prefix with placeholders counts as it is
// written.
type Member struct {
	Space, Prefix string // where the queue is kept, and its name
	Directory     string // of the handler
	Engine        string // the name of its module
	DryRun        bool
	Rule, Shared  serializer.Rule // for most requests, and for those with shared methods
}

// queueIdentity identifies a queue within a configuration.
type queueIdentity struct{ space, prefix string }

// configuration is known by its metrics registry, of which each configuration has one.
// The lock of [table] guards it.
type configuration struct {
	number   uint64
	handlers int // that use it
	declared Declarations[queueIdentity]
	engines  map[queueIdentity]engine // by directory and prefix
	rules    map[queueIdentity]*Rules
	passages []passage
}

type table struct {
	mu         sync.Mutex
	last       uint64 // number of a configuration
	byRegistry map[*prometheus.Registry]*configuration
}

var configurations = table{byRegistry: make(map[*prometheus.Registry]*configuration)}

// Join adds a handler that is being provisioned to its configuration, until leave is
// called. It returns the rules of the handler's queue. The error says that the handler
// does not agree with another one; leave is to be called then, too.
func Join(ctx caddy.Context, m Member, log *zap.Logger) (rules *Rules, leave func(), err error) {
	registry := ctx.GetMetricsRegistry()
	rules, opposite, err := configurations.join(registry, m, routes.PlaceOf(ctx))
	if opposite != nil {
		opposite.warn(log)
	}
	return rules, func() { configurations.leave(registry) }, err
}

func (t *table) join(registry *prometheus.Registry, m Member, at routes.Place) (*Rules, *oppositeOrders, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byRegistry[registry]
	if c == nil {
		t.last++
		c = &configuration{number: t.last, declared: make(Declarations[queueIdentity]), engines: make(map[queueIdentity]engine), rules: make(map[queueIdentity]*Rules)}
		t.byRegistry[registry] = c
	}
	c.handlers++
	queue := queueIdentity{m.Space, m.Prefix}
	if err := c.declared.Agree(queue, m.Prefix, Declaration{m.DryRun, at.String()}); err != nil {
		return nil, nil, err
	}
	if err := c.agreeLocked(m, at.String()); err != nil {
		return nil, nil, err
	}
	return c.noteRulesLocked(queue, m.Rule, m.Shared), c.passLocked(passage{queue: queue, at: at}), nil
}

func (t *table) leave(registry *prometheus.Registry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byRegistry[registry]
	if c == nil {
		return // all have left
	}
	if c.handlers--; c.handlers == 0 {
		delete(t.byRegistry, registry)
	}
}
