package etcd

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Options say where and how a [Store] keeps its tickets.
type Options struct {
	// Endpoints are the URLs of the cluster's members, with the port, such as
	// https://10.0.0.1:2379. At least one is required.
	Endpoints []string

	// Namespace is the prefix of all keys. Queues in different namespaces are independent.
	// No namespace should begin with another namespace and a slash. Default: orderly/.
	Namespace string

	// TTL is the time to live of the process's lease: how long other processes wait for one
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

// DefaultNamespace is that of [Options].
const DefaultNamespace = "orderly/"

// Open makes a store. It does not wait for the cluster. Arrivals wait while a lease is
// being requested. If that fails, they are refused with [serializer.ReasonStorage] until
// the store, which keeps trying, has a lease. The error is for invalid options.
func Open(o Options) (*Store, error) {
	o.TTL = cmp.Or(o.TTL, lease.DefaultTTL)
	for _, endpoint := range o.Endpoints {
		if normal, err := Endpoint(endpoint); err != nil || normal != endpoint {
			return nil, errors.New("opening etcd store: expected endpoints with the port, such as https://10.0.0.1:2379; a login is in Options.Username and Password")
		}
	}
	switch {
	case len(o.Endpoints) == 0:
		return nil, errors.New("opening etcd store: no endpoints")
	case lease.CheckTTL(o.TTL) != nil || o.TTL%time.Second != 0:
		return nil, fmt.Errorf("opening etcd store: time to live %s; expected whole seconds from 2s to 1h", o.TTL)
	}
	c, err := newCluster(o)
	if err != nil {
		return nil, fmt.Errorf("opening etcd store: %w", err)
	}
	st := &Store{keys: keyspace(cmp.Or(o.Namespace, DefaultNamespace)), cluster: c}
	st.Store = lease.NewStore(lease.Options{
		Name: "etcd", Where: strings.Join(o.Endpoints, ","), Path: "etcd:" + strings.TrimSuffix(string(st.keys), "/"),
		TTL: o.TTL, Log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		New: func(base *lease.Session) lease.Protocol { return &session{Session: base, store: st} }, Free: c.close,
	})
	return st, nil
}

// Endpoint writes the URL of a member in one form: with the port, which is 2379 by default. Errors do not
// quote the URL, since it may have a password.
func Endpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err == nil {
		_, err = net.LookupPort("tcp", u.Port())
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("expected a URL such as https://10.0.0.1:2379, and the options username and password")
	}
	return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "2379")), nil
}
