package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Options say where and how a [Store] keeps its tickets.
type Options struct {
	// Endpoints are the URLs of the cluster's members, with the port, such as
	// https://10.0.0.1:2379. At least one is required.
	Endpoints []string

	// Namespace is the prefix of all keys. Queues in different namespaces are independent.
	// No namespace should begin with another namespace and a slash. Default: orderly/.
	Namespace string

	// TTL is the time to live of the process's lease: how long others wait for a process
	// that died or is cut off. Whole seconds, 2s to 1h. Default: 10s.
	TTL time.Duration

	// Username and Password are for etcd's authentication. Default: none.
	Username, Password string

	// TLS is the configuration for https endpoints. Default: the system's authorities,
	// and no client certificate.
	TLS *tls.Config

	// Log receives the start of leases, and errors. Default: none.
	Log *slog.Logger
}

// Defaults and bounds of [Options].
const (
	DefaultNamespace = "orderly/"
	DefaultTTL       = 10 * time.Second
	MinTTL           = 2 * time.Second
	MaxTTL           = time.Hour
)

// Open makes a store. It does not wait for the cluster. Arrivals wait while a lease is
// being requested. If that fails, they are refused with [serializer.ReasonStorage] until
// the store, which keeps trying, has a lease. The error is for invalid options.
func Open(o Options) (*Store, error) {
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	switch {
	case len(o.Endpoints) == 0:
		return nil, errors.New("opening etcd store: no endpoints")
	case o.TTL < MinTTL || o.TTL > MaxTTL || o.TTL%time.Second != 0:
		return nil, fmt.Errorf("opening etcd store: time to live %s; expected whole seconds from %s to %s", o.TTL, MinTTL, MaxTTL)
	}
	c, err := newCluster(o)
	if err != nil {
		return nil, fmt.Errorf("opening etcd store: %w", err)
	}
	host, _ := os.Hostname() // for people
	st := &Store{
		keys:     keyspace(cmp.Or(o.Namespace, DefaultNamespace)),
		where:    strings.Join(o.Endpoints, ","),
		owner:    &serializer.Owner{Name: fmt.Sprintf("pid %d on %s", os.Getpid(), host), Alive: true},
		ttl:      o.TTL,
		cluster:  c,
		log:      cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		sessions: make(map[uint64]*session),
		pauses:   make(map[string]*knownPause),
	}
	st.operations.Store(128)
	st.ctx, st.stop = context.WithCancel(context.Background())
	return st, nil
}
