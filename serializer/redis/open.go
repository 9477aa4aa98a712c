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

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Options say where and how a [Store] keeps its tickets.
type Options struct {
	// Addresses are the servers, as host:port: the master, and the replicas that may take
	// over. The store uses the one that is the master. At least one is required.
	Addresses []string

	// Namespace separates queues that share a server. The names of all keys begin with
	// it, in braces, and are in one hash slot. Default: orderly.
	Namespace string

	// TTL is how long other processes wait for one that died or is cut off. 2s to 1h.
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

// Open makes a store. It does not wait for the servers; see [Store.Suitable]. Arrivals wait
// while a session is being begun. If that fails, they are refused with
// [serializer.ReasonStorage] until the store, which keeps trying, has one. The error is for
// invalid options.
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
	st := &Store{options: o, keys: k, servers: newServers(o, k), slots: make(chan struct{}, 4)}
	st.Store = lease.NewStore(lease.Options{
		Name: "Redis", Where: strings.Join(o.Addresses, ", "), Path: "redis:" + k.namespace,
		TTL: o.TTL, Log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), New: st.newSession,
		Passes: func(err error) bool { return transient(err) && !timedOut(err) },
	})
	return st, nil
}

// Suitable asks the servers whether they can keep queues at all, as they are configured. The
// error is an [ErrUnsuitable]. There is none if they do not answer before ctx is done.
func (st *Store) Suitable(ctx context.Context) error {
	servers := newServers(st.options, st.keys) // the session may be choosing one
	defer servers.close()
	choosing, cancel := ctx, context.CancelFunc(func() {})
	if end, ok := ctx.Deadline(); ok { // a silent server beside the master hides nothing
		choosing, cancel = context.WithTimeout(ctx, time.Until(end)/2)
	}
	err := servers.choose(choosing)
	cancel()
	if err == nil {
		var subscription *redis.PubSub
		if subscription, err = servers.subscribe(ctx); err == nil {
			_ = subscription.Close()
		}
	}
	if errors.Is(err, ErrUnsuitable) {
		return fmt.Errorf("opening Redis store: %w", err)
	}
	return nil
}
