package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Options say where and how a [Store] keeps its tickets.
type Options struct {
	// Addresses are the servers, as host:port: the master, and the replicas that may take
	// over. The store uses the one that is the master. At least one is required.
	Addresses []string

	// Namespace tells queues apart that share a server. The names of all keys begin with
	// it, in braces, and are in one hash slot. Default: orderly.
	Namespace string

	// TTL is how long others wait for a process that died or is cut off. 2s to 1h.
	// Processes that share queues should have the same. Default: 10s.
	TTL time.Duration

	// Username and Password are for Redis's authentication. Default: none.
	Username, Password string

	// Database is the number of the database. Default: 0.
	Database int

	// TLS is the configuration of encrypted connections. Default: none, no encryption.
	TLS *tls.Config

	// Log receives the start of sessions, and errors. Default: none.
	Log *slog.Logger
}

// DefaultNamespace is that of [Options].
const DefaultNamespace = "orderly"

// Open makes a store. It looks at the servers for a moment. The error is for invalid
// options, and for servers that can never keep queues, as they are configured; see
// [ErrUnsuitable]. A server need not be reachable. Arrivals wait while a session is being
// begun. If that fails, they are refused with [serializer.ReasonStorage] until the store,
// which keeps trying, has one.
func Open(o Options) (*Store, error) {
	o.TTL = cmp.Or(o.TTL, lease.DefaultTTL)
	switch {
	case len(o.Addresses) == 0:
		return nil, errors.New("opening Redis store: no addresses")
	case slices.ContainsFunc(o.Addresses, func(a string) bool { return strings.ContainsAny(a, "@/") }): // errors and logs show them
		return nil, errors.New("opening Redis store: expected addresses as host:port, and Options.Username and Password")
	case strings.ContainsAny(o.Namespace, "{}"):
		return nil, fmt.Errorf("opening Redis store: namespace %q; expected no braces, which choose the slot of keys", o.Namespace)
	}
	if err := lease.CheckTTL(o.TTL); err != nil {
		return nil, fmt.Errorf("opening Redis store: %w", err)
	}
	k := keysOf(cmp.Or(o.Namespace, DefaultNamespace), o.Database)
	st := &Store{keys: k, servers: newServers(o, k), slots: make(chan struct{}, 4)}
	st.Store = lease.NewStore(lease.Options{
		Name: "Redis", Where: strings.Join(o.Addresses, ", "), Path: "redis:" + k.namespace,
		TTL: o.TTL, Log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), New: st.newSession,
		Passes: func(err error) bool { return transient(err) && !timedOut(err) },
	})
	ctx, cancel := context.WithTimeout(st.Ctx, 2*st.servers.timeout) // for a silent server, and the master
	defer cancel()
	subscription, err := st.servers.subscribeMaster(ctx)
	if err == nil {
		_ = subscription.Close()
	}
	if errors.Is(err, ErrUnsuitable) {
		st.servers.close()
		return nil, fmt.Errorf("opening Redis store: %w", err)
	}
	return st, nil
}
