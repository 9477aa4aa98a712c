//go:build unix

package once_test

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// This file has modules of the Caddys under test: handlers that do what Caddy's own do not, and
// a storage and an engine that stand in for those of several machines.

func init() {
	caddy.RegisterModule(otherProxy{})
	caddy.RegisterModule(panics{})
	caddy.RegisterModule(faultyStorage{})
	caddy.RegisterModule(sharedEngine{})
	httpcaddyfile.RegisterHandlerDirective("other_proxy", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		args := append(h.RemainingArgs(), "502")
		status, err := strconv.Atoi(args[1])
		return &otherProxy{To: args[0], Status: status}, err
	})
	httpcaddyfile.RegisterHandlerDirective("panics", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) { return panics{}, nil })
}

// otherProxy is the proxy of Go's library, which answers its errors itself.
type otherProxy struct {
	To     string `json:"to"`
	Status int    `json:"status"` // of errors
}

func (otherProxy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.other_proxy", New: func() caddy.Module { return new(otherProxy) }}
}

var kept http.Transport // so that connections are kept

func (p *otherProxy) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: p.To})
	proxy.Transport = &kept
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(p.Status) }
	proxy.ServeHTTP(w, r)
	return nil
}

type panics struct{}

func (panics) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.panics", New: func() caddy.Module { return new(panics) }}
}

func (panics) ServeHTTP(http.ResponseWriter, *http.Request, caddyhttp.Handler) error {
	panic("on purpose")
}

// faultyStorage stores files in a directory, until a file beside it says what fails. It removes
// no folders, as some modules of storage.
type faultyStorage struct {
	certmagic.FileStorage
}

func (faultyStorage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.faulty", New: func() caddy.Module { return new(faultyStorage) }}
}

func (s *faultyStorage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	s.Path = d.RemainingArgs()[0]
	return nil
}

func (s *faultyStorage) CertMagicStorage() (certmagic.Storage, error) { return s, nil }

func (s *faultyStorage) fault(ctx context.Context, of, key string) error {
	if ctx.Err() != nil { // as of storage that a network leads to
		return ctx.Err()
	}
	fault, _ := os.ReadFile(s.Path + ".fault")
	if !strings.HasPrefix(key, "orderly/") || !strings.Contains(string(fault), of) {
		return nil
	}
	if strings.Contains(string(fault), "silent") {
		<-ctx.Done()
		return ctx.Err()
	}
	return fs.ErrPermission
}

func (s *faultyStorage) Load(ctx context.Context, key string) ([]byte, error) {
	if err := s.fault(ctx, "load", key); err != nil {
		return nil, err
	}
	return s.FileStorage.Load(ctx, key)
}

func (s *faultyStorage) Store(ctx context.Context, key string, value []byte) error {
	if err := s.fault(ctx, "store", key); err != nil {
		return err
	}
	return s.FileStorage.Store(ctx, key, value)
}

// sharedEngine is a directory of lock files under another name.
type sharedEngine struct{}

func (sharedEngine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.serialize.engines.shared", New: func() caddy.Module { return new(sharedEngine) }}
}

func (sharedEngine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { d.Next(); return nil }

func (sharedEngine) Key(path string) string { return "shared:" + path }

func (sharedEngine) Open(path string, log *slog.Logger) (serializer.Store, error) {
	return lockfile.Open(path, lockfile.Options{Log: log})
}
