package serialize

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/webpage"
)

// Status answers with a live page that shows the queues of this process, those in
// trouble first. It lists the requests inside and waiting, the refusals, and the
// waiting times of the last ten minutes. The page is one file, loads nothing else and
// works without JavaScript. `?filter=` selects the queues with a text in their name or
// directory. Clients whose Accept header prefers JSON get the same data as JSON.
//
// The page names clients and queues. Protect it by authentication, or serve it on a
// private address.
type Status struct {
	// Lets the page evict tickets, and pause and resume queues, by POST from its own
	// origin only. Default: false; POST is answered with 405.
	Controls bool `json:"controls,omitempty"`

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Status) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.serialize_status",
		New: func() caddy.Module { return new(Status) },
	}
}

// Provision sets up the handler.
func (s *Status) Provision(ctx caddy.Context) error {
	s.logger = ctx.Logger()
	return nil
}

// ParseStatusDirective sets up the serialize_status directive, which may have a matcher.
// Its syntax is that of [Status.UnmarshalCaddyfile].
func ParseStatusDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	s := new(Status)
	return s, s.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	serialize_status {
//	    controls
//	}
func (s *Status) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if err := directive.NoArgument(d, "serialize_status"); err != nil {
		return err
	}
	return statusSubdirectives.ParseBlock(d, "serialize_status", s)
}

var statusSubdirectives = directive.Table[*Status]{directive.On("controls", (*Status).parseControls)}

func (s *Status) parseControls(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Errf("controls: unexpected argument %q; it has none", d.Val())
	}
	s.Controls = true
	return nil
}

// ServeHTTP answers with the page or its data, or performs the action of a control.
func (s *Status) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return s.serveStatus(w, r)
	case r.Method == http.MethodPost && s.Controls:
		return s.serveControl(w, r)
	}
	w.Header().Set("Allow", s.methods())
	return caddyhttp.Error(http.StatusMethodNotAllowed, fmt.Errorf("status page: method %s is not allowed", r.Method))
}

func (s *Status) methods() string {
	if s.Controls {
		return "GET, HEAD, POST"
	}
	return "GET, HEAD"
}

func (s *Status) serveStatus(w http.ResponseWriter, r *http.Request) error {
	data := s.collect(r.Context(), time.Now(), r.URL.Query().Get("filter"))
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Add("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	if prefersJSON(r.Header.Values("Accept")) {
		text, err := json.Marshal(data)
		if err != nil {
			return caddyhttp.Error(http.StatusInternalServerError, fmt.Errorf("status page: %w", err))
		}
		header.Set("Content-Type", "application/json")
		return send(w, r, append(text, '\n'))
	}
	text, err := statuspage.Render(data, s.Controls)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, fmt.Errorf("status page: %w", err))
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", statuspage.Policy())
	header.Set("Referrer-Policy", "no-referrer")
	return send(w, r, text)
}

// send writes a complete body.
func send(w http.ResponseWriter, r *http.Request, body []byte) error {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodHead {
		return nil
	}
	_, err := w.Write(body)
	return err
}

// prefersJSON reports whether a client would rather have JSON than HTML.
func prefersJSON(accept []string) bool {
	return webpage.Quality(accept, "application/json") > webpage.Quality(accept, "text/html")
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Status)(nil)
	_ caddyfile.Unmarshaler       = (*Status)(nil)
	_ caddyhttp.MiddlewareHandler = (*Status)(nil)
)
