//go:build unix

package once_test

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(otherProxy{})
	httpcaddyfile.RegisterDirectiveOrder("other_proxy", httpcaddyfile.Before, "reverse_proxy")
	httpcaddyfile.RegisterHandlerDirective("other_proxy", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		args := h.RemainingArgs()
		status, err := strconv.Atoi(args[1])
		return &otherProxy{To: args[0], Status: status}, err
	})
}

// otherProxy is the proxy of Go's library, which answers its errors itself.
type otherProxy struct {
	To     string `json:"to"`
	Status int    `json:"status"` // of errors; with 0, it panics
}

func (otherProxy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.other_proxy", New: func() caddy.Module { return new(otherProxy) }}
}

var kept http.Transport // so that connections are kept

func (p *otherProxy) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: p.To})
	proxy.Transport = &kept
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if p.Status == 0 {
			panic(err)
		}
		w.WriteHeader(p.Status)
	}
	proxy.ServeHTTP(w, r)
	return nil
}
