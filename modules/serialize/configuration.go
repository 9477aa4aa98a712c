package serialize

import (
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// configuration is what the handlers of one configuration know of each other while
// they are provisioned. Handlers know their configuration by its metrics registry,
// of which each configuration has one.
type configuration struct {
	number   uint64
	handlers int // that use it
	declared declarations[queueIdentity]
	rules    map[queueIdentity]*queueRules
	passages []passage
}

// queueIdentity identifies a queue within a configuration. Prefixes with placeholders
// count as they are written.
type queueIdentity struct{ space, prefix string }

var configurations = struct {
	sync.Mutex
	last       uint64 // number
	byRegistry map[*prometheus.Registry]*configuration
}{byRegistry: make(map[*prometheus.Registry]*configuration)}

// enterConfiguration adds a handler to its configuration until leave is called. check
// compares it with the others.
func enterConfiguration(ctx caddy.Context, check func(*configuration) error) (leave func(), err error) {
	registry := ctx.GetMetricsRegistry()
	configurations.Lock()
	defer configurations.Unlock()
	c := configurations.byRegistry[registry]
	if c == nil {
		configurations.last++
		c = &configuration{
			number: configurations.last, declared: make(declarations[queueIdentity]), rules: make(map[queueIdentity]*queueRules),
		}
		configurations.byRegistry[registry] = c
	}
	c.handlers++
	return func() { c.leave(registry) }, check(c)
}

// joinConfiguration compares the handler with the others of its configuration.
func (s *Handler) joinConfiguration(ctx caddy.Context) (err error) {
	queue, at := queueIdentity{spaceOf(s.module, resolveDirectory(s.Path).path), s.Prefix}, placeOf(ctx)
	s.leaveConfig, err = enterConfiguration(ctx, func(c *configuration) error {
		if err := c.declared.agree(queue, queue.prefix, declaration{s.DryRun, at.String()}); err != nil {
			return err
		}
		s.rules = c.noteRules(queue, s.rule, s.shared)
		c.pass(passage{queue: queue, at: at}, s.logger)
		return nil
	})
	return err
}

func (c *configuration) leave(registry *prometheus.Registry) {
	configurations.Lock()
	defer configurations.Unlock()
	if c.handlers--; c.handlers == 0 {
		delete(configurations.byRegistry, registry)
	}
}
