package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
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

	// Log receives the start of sessions, and errors. Default: none. The client library,
	// go-redis, has one log for the whole process. Open sends that to this one, as debug
	// messages; a program that wants it elsewhere calls its SetLogger afterwards.
	Log *slog.Logger
}

// Open makes a store. It does not wait for the servers; see [Store.Suitable]. Arrivals wait
// while a session is being begun. If that fails, they are refused with
// [serializer.ReasonStorage] until the store, which keeps trying, has one. The error is for
// invalid options.
func Open(o Options) (*Store, error) {
	o.TTL, o.Log = cmp.Or(o.TTL, lease.DefaultTTL), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Namespace = cmp.Or(o.Namespace, "orderly")
	if err := cmp.Or(o.Check(), lease.CheckTTL(o.TTL)); err != nil {
		return nil, fmt.Errorf("opening Redis store: %w", err)
	}
	redis.SetLogger(clientLog{o.Log})
	st := &Store{servers: newServers(o), slots: make(chan struct{}, 4)}
	st.Store = lease.NewStore(lease.Options{
		Name: "Redis", Where: strings.Join(o.Addresses, ", "), Path: "redis:" + o.Namespace,
		TTL: o.TTL, Log: o.Log, New: st.newSession, Free: st.servers.close,
	})
	return st, nil
}

// Check returns an error for options that are invalid, whatever the defaults.
func (o Options) Check() error {
	for _, address := range o.Addresses {
		if normal, err := Address(address); err != nil || normal != address {
			return errors.New("expected addresses as host:port, with the port, at most 65535; a login is in Options.Username and Password")
		}
	}
	switch {
	case len(o.Addresses) == 0:
		return errors.New("address: none; expected at least one host and port such as 10.0.0.1:6379")
	case o.Database < 0:
		return fmt.Errorf("database %d: expected 0 or more", o.Database)
	case o.Username != "" && o.Password == "":
		return errors.New("username: expected a password, too")
	case strings.ContainsAny(o.Namespace, "{}"):
		return fmt.Errorf("namespace %q; expected no braces, which choose the slot of keys", o.Namespace)
	}
	return nil
}

// Address writes the address of a server in one form: with the port, which is 6379 by default. Errors do not
// quote the address, since it may have a password.
func Address(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), "6379"
	}
	_, noNumber := strconv.ParseUint(port, 10, 16)
	_, noIP := netip.ParseAddr(host)
	if host == "" || noNumber != nil || strings.ContainsAny(host, "@?/") || strings.Contains(host, ":") && noIP != nil {
		return "", errors.New("expected host:port such as 10.0.0.1:6379, and the options username and password")
	}
	return net.JoinHostPort(host, port), nil
}

// clientLog receives what the client library logs about connections.
type clientLog struct{ *slog.Logger }

// Printf implements the library's interface.
func (l clientLog) Printf(ctx context.Context, format string, args ...any) {
	l.DebugContext(ctx, fmt.Sprintf(format, args...))
}

// Suitable reports whether the servers can keep queues at all, as they are configured. It waits
// for the session of a store that is followed. The error is an [ErrUnsuitable]. There is none if
// the servers do not answer before ctx is done, or refuse the password: that may change.
func (st *Store) Suitable(ctx context.Context) error {
	if err := st.Sync(ctx); errors.Is(err, ErrUnsuitable) {
		return fmt.Errorf("opening Redis store: %w", err)
	}
	return nil
}
