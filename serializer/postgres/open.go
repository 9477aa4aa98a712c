package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Options say where and how a [Store] keeps its tickets.
type Options struct {
	// URL says where the database is, such as
	// postgres://orderly:secret@10.0.0.1/shop?sslmode=verify-full. There may be several
	// hosts, separated by commas: the one that can be written to is used. What it does
	// not say comes from libpq's environment, such as PGPASSWORD. Required.
	URL string

	// Namespace separates queues in the same tables. Default: orderly.
	Namespace string

	// TTL is the time to live of the process's lease: how long other processes wait for one
	// that died or is cut off. 2s to 1h. Default: 10s.
	TTL time.Duration

	// Log receives the start of leases, and errors. Default: none.
	Log *slog.Logger
}

// Open makes a store. It does not wait for the database. Arrivals wait while a lease is
// being requested. If that fails, they are refused with [serializer.ReasonStorage] until
// the store, which keeps trying, has a lease. The error is for invalid options.
func Open(o Options) (*Store, error) {
	o.TTL, o.Namespace = cmp.Or(o.TTL, lease.DefaultTTL), cmp.Or(o.Namespace, "orderly")
	server, err := parseURL(o.URL)
	if !utf8.ValidString(o.Namespace) || strings.Contains(o.Namespace, "\x00") {
		err = fmt.Errorf("namespace %q; expected UTF-8 without zero bytes", o.Namespace)
	}
	if err = cmp.Or(err, lease.CheckTTL(o.TTL)); err != nil {
		return nil, fmt.Errorf("opening postgres store: %w", err)
	}
	st := &Store{namespace: o.Namespace, patience: min(max(o.TTL/4, time.Second), 5*time.Second), server: server}
	st.Store = lease.NewStore(lease.Options{
		Name: "PostgreSQL", Where: fmt.Sprintf("%s:%d/%s", server.Host, server.Port, server.Database), Path: "postgres:" + st.namespace,
		TTL: o.TTL, Log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		New: func(base *lease.Session) lease.Protocol { return &session{Session: base, store: st, version: -1} },
	})
	return st, nil
}

var errSpecial = errors.New("the URL cannot be read; write special characters in it as % codes, such as %40 for @ in a password")

// parseURL reads a URL for connections that work through any pooler: nothing is prepared,
// and each request is one message. See exchange. Errors show nothing of the password.
func parseURL(url string) (*pgx.ConnConfig, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	login, place, hasLogin := strings.Cut(rest, "@")
	switch {
	case scheme != "postgres" && scheme != "postgresql":
		return nil, errors.New("expected a URL such as postgres://orderly:secret@10.0.0.1/shop")
	case hasLogin && (strings.ContainsAny(login, "/?#") || strings.Contains(place, "@")):
		return nil, errSpecial // otherwise, a part of the password would count as something else
	}
	server, err := pgx.ParseConfig(url)
	if err != nil {
		text := err.Error() // the URL in backquotes, and the reason
		if text = text[strings.LastIndex(text, "`")+1:]; strings.Contains(text, "parse as URL") {
			return nil, errSpecial
		}
		return nil, errors.New("the URL cannot be used" + text)
	}
	server.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	server.RuntimeParams["client_encoding"] = "UTF8" // this, and the next one, are what that mode needs
	server.RuntimeParams["standard_conforming_strings"] = "on"
	server.ConnectTimeout = cmp.Or(server.ConnectTimeout, 2*time.Second) // for each host
	if server.ValidateConnect == nil {                                   // target_session_attrs
		server.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	server.RuntimeParams["application_name"] = cmp.Or(server.RuntimeParams["application_name"], "orderly")
	return server, nil
}
