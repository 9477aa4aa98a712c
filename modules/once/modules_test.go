//go:build unix

package once_test

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
)

// This file has modules of the Caddys under test: handlers and a storage that do what Caddy's own do
// not.

func init() {
	caddy.RegisterModule(otherProxy{})
	caddy.RegisterModule(panics{})
	caddy.RegisterModule(otherStorage{})
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

// otherStorage is storage that is not files, as far as is known.
type otherStorage struct{ certmagic.FileStorage }

func (otherStorage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.other", New: func() caddy.Module { return new(otherStorage) }}
}

func (otherStorage) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (s *otherStorage) CertMagicStorage() (certmagic.Storage, error) { return s, nil }
