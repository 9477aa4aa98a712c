package serialize

import (
	"errors"
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
)

// Status answers with a live page that shows the queues of this process, those in
// trouble first. It lists the requests inside and waiting, and says what is wrong and what
// was refused. The page is one file, loads nothing else and works without JavaScript.
// `?filter=` selects the queues with a text in their name or directory.
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
	allowed := "GET, HEAD"
	if s.Controls {
		allowed += ", POST"
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return s.serveStatus(w, r)
	case r.Method == http.MethodPost && s.Controls:
		return s.serveControl(w, r)
	}
	w.Header().Set("Allow", allowed)
	return caddyhttp.Error(http.StatusMethodNotAllowed, fmt.Errorf("status page: method %s is not allowed", r.Method))
}

func (s *Status) serveStatus(w http.ResponseWriter, r *http.Request) error {
	data := statuspage.New(time.Now(), statusQueues(r.Context(), time.Now()), r.URL.Query().Get("filter"))
	data.Controls = s.Controls
	text, err := statuspage.Render(data)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, fmt.Errorf("status page: %w", err))
	}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Length": strconv.Itoa(len(text)), "Cache-Control": "no-store",
		"Content-Security-Policy": statuspage.Policy(), "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
	} {
		w.Header().Set(name, value)
	}
	if r.Method == http.MethodGet {
		_, err = w.Write(text)
	}
	return err
}

// serveControl performs an action. The page gets JSON, also for an error.
func (s *Status) serveControl(w http.ResponseWriter, r *http.Request) error {
	result, err := s.control(r)
	if err != nil {
		status := http.StatusInternalServerError
		if failed, ok := errors.AsType[caddy.APIError](err); ok {
			status, err = failed.HTTPStatus, failed.Err
		}
		w.Header().Set("Content-Type", "application/json") // which is sent now
		w.WriteHeader(status)
		result = map[string]string{"error": err.Error()}
	}
	return writeJSON(w, result, nil)
}

// control performs the action of a request's query. A queue is its path, a slash and its
// prefix.
func (s *Status) control(r *http.Request) (result any, err error) {
	if !isFromPage(r) {
		return nil, adminError(http.StatusForbidden, errors.New(
			"neither Sec-Fetch-Site nor Origin says that the request comes from the status page; it is from another origin, or a program, which can use the admin API"))
	}
	query := r.URL.Query()
	name, queue := query.Get("action"), query.Get("queue")
	action, ok := actions[name]
	if !ok {
		return nil, adminError(http.StatusBadRequest, fmt.Errorf("action %q: expected evict, pause or resume", name))
	}
	result, err = action.do(r.Context(), queue, query)
	if err == nil {
		ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
		user, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString("http.auth.user.id")
		s.logger.Info("status page: "+name, zap.String("queue", queue), zap.String("token", query.Get("token")),
			zap.String("client_ip", ip), zap.String("user", user))
	}
	return result, err
}

// isFromPage reports whether a request comes from the page itself. A reader of the page is
// logged in, so pages of other sites could send requests in their name. Browsers state a
// request's origin. A request without one is not from the page.
func isFromPage(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
		return true
	case "": // an older browser
		return r.Header.Get("Origin") != "" && http.NewCrossOriginProtection().Check(r) == nil
	}
	return false
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Status)(nil)
	_ caddyfile.Unmarshaler       = (*Status)(nil)
	_ caddyhttp.MiddlewareHandler = (*Status)(nil)
)
