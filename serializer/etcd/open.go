package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options say where and how an [Engine] keeps its queues.
type Options struct {
	// Endpoints are the URLs of the cluster's members, with the port, such as
	// https://10.0.0.1:2379. At least one is required.
	Endpoints []string

	// Namespace is the prefix of all keys. Queues in different namespaces are
	// independent. No namespace should begin with another namespace and a
	// slash. Default: orderly/.
	Namespace string

	// TTL is the time to live of the process's lease: how long others wait for
	// a process that died or is cut off. Whole seconds, 2s to 1h. Default: 10s.
	TTL time.Duration

	// Username and Password are for etcd's authentication. Default: none.
	Username, Password string

	// TLS is the configuration for https endpoints. Default: the system's authorities,
	// and no client certificate.
	TLS *tls.Config

	// Clock is the source of the times that people see in lists. The order does not
	// depend on it. Default: [time.Now].
	Clock func() time.Time

	// Log receives the start and loss of leases, and errors. Default: none.
	Log *slog.Logger
}

// Defaults and bounds of [Options].
const (
	DefaultNamespace = "orderly/"
	DefaultTTL       = 10 * time.Second
	MinTTL           = 2 * time.Second
	MaxTTL           = time.Hour
)

// Open makes an engine. It does not wait for the cluster. Arrivals wait while a lease
// is being requested. If that fails, they are refused with [serializer.ReasonStorage]
// until the engine, which keeps trying, has a lease. The error is for invalid options.
func Open(o Options) (*Engine, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("opening etcd engine: no endpoints")
	}
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	if o.TTL < MinTTL || o.TTL > MaxTTL || o.TTL%time.Second != 0 {
		return nil, fmt.Errorf("opening etcd engine: time to live %s; expected whole seconds from %s to %s", o.TTL, MinTTL, MaxTTL)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	c, err := newCluster(o.Endpoints, o.TLS, o.Username, o.Password, patienceOf(o.TTL))
	if err != nil {
		return nil, fmt.Errorf("opening etcd engine: %w", err)
	}
	e := &Engine{
		keys:    keyspace(cmp.Or(o.Namespace, DefaultNamespace)),
		where:   strings.Join(o.Endpoints, ","),
		owner:   self(),
		ttl:     o.TTL,
		cluster: c,
		clock:   uptime,
		now:     o.Clock,
		log:     cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		ended:   make(chan struct{}),
		changed: make(chan struct{}),
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	go e.run()
	return e, nil
}
