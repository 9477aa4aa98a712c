package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
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

	// Clients are clients of the servers, in place of Addresses, Username, Password, Database
	// and TLS. The store copies their options, and makes connections of its own: it needs
	// other timeouts, and repeats requests itself. The clients stay the caller's.
	Clients []*redis.Client

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

	// Log receives the start of sessions, and errors. Default: none. The client library,
	// go-redis, has one log for the whole process. Open sends that to this one, as debug
	// messages; a program that wants it elsewhere calls its SetLogger afterwards.
	Log *slog.Logger
}

// DefaultNamespace is that of [Options].
const DefaultNamespace = "orderly"

// Open makes a store. It does not wait for the servers; see [Store.Suitable]. Arrivals wait
// while a session is being begun. If that fails, they are refused with
// [serializer.ReasonStorage] until the store, which keeps trying, has one. The error is for
// invalid options.
func Open(o Options) (*Store, error) {
	o.TTL, o.Log = cmp.Or(o.TTL, lease.DefaultTTL), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	servers, err := clientOptions(o)
	switch {
	case err != nil:
		return nil, fmt.Errorf("opening Redis store: %w", err)
	case o.Database < 0:
		return nil, fmt.Errorf("opening Redis store: database %d; expected 0 or more", o.Database)
	case strings.ContainsAny(o.Namespace, "{}"):
		return nil, fmt.Errorf("opening Redis store: namespace %q; expected no braces, which choose the slot of keys", o.Namespace)
	}
	if err := lease.CheckTTL(o.TTL); err != nil {
		return nil, fmt.Errorf("opening Redis store: %w", err)
	}
	redis.SetLogger(clientLog{o.Log})
	k := keysOf(cmp.Or(o.Namespace, DefaultNamespace), servers[0].DB)
	st := &Store{options: servers, keys: k, servers: newServers(servers, o.TTL, k), slots: make(chan struct{}, 4)}
	addresses := make([]string, len(servers))
	for i, server := range servers {
		addresses[i] = server.Addr
	}
	st.Store = lease.NewStore(lease.Options{
		Name: "Redis", Where: strings.Join(addresses, ", "), Path: "redis:" + k.namespace,
		TTL: o.TTL, Log: o.Log, New: st.newSession,
		Passes: func(err error) bool { return transient(err) && !timedOut(err) },
	})
	return st, nil
}

// clientOptions are those of the clients, one for each server.
func clientOptions(o Options) (servers []*redis.Options, err error) {
	for _, client := range o.Clients {
		servers = append(servers, new(*client.Options()))
	}
	for _, address := range o.Addresses {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" || strings.ContainsAny(address, "@/") { // errors and logs show them
			return nil, errors.New("expected addresses as host:port, with the port; a login is in Options.Username and Password")
		}
		servers = append(servers, &redis.Options{Addr: address, Username: o.Username, Password: o.Password, DB: o.Database, TLSConfig: o.TLS})
	}
	if len(servers) == 0 || len(o.Clients) > 0 && len(o.Addresses) > 0 {
		return nil, errors.New("expected either addresses or clients, at least one")
	}
	return servers, nil
}

// clientLog receives what the client library logs about connections.
type clientLog struct{ *slog.Logger }

// Printf implements the library's interface.
func (l clientLog) Printf(ctx context.Context, format string, args ...any) {
	l.DebugContext(ctx, fmt.Sprintf(format, args...))
}

// Suitable asks the servers whether they can keep queues at all, as they are configured. The
// error is an [ErrUnsuitable]. There is none if they do not answer before ctx is done, or refuse the
// password: that may change.
func (st *Store) Suitable(ctx context.Context) error {
	servers := newServers(st.options, st.TTL, st.keys) // the session may be choosing one
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
