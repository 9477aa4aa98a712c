package serialize

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/webpage"
)

// Status answers with a live page that shows the queues of this process, those in
// trouble first. It lists the requests inside and waiting, and the refusals and waiting
// times of the last ten minutes. The page is one file, loads nothing else and works
// without JavaScript. `?filter=` selects the queues with a text in their name or
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
	now := time.Now()
	data := statuspage.New(now, statusQueues(r.Context(), now), r.URL.Query().Get("filter"))
	data.Controls = s.Controls
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Add("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	var text []byte
	var err error
	if accept := r.Header.Values("Accept"); webpage.Quality(accept, "application/json") > webpage.Quality(accept, "text/html") {
		header.Set("Content-Type", "application/json")
		text, err = json.Marshal(data)
	} else {
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", statuspage.Policy())
		header.Set("Referrer-Policy", "no-referrer")
		text, err = statuspage.Render(data)
	}
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, fmt.Errorf("status page: %w", err))
	}
	header.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method == http.MethodHead {
		return nil
	}
	_, err = w.Write(text)
	return err
}

// maxControlSize limits the request of a control, in bytes.
const maxControlSize = 64 << 10

// serveControl performs an action. The page gets JSON, also for an error.
func (s *Status) serveControl(w http.ResponseWriter, r *http.Request) error {
	result, err := s.control(w, r)
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

func (s *Status) control(w http.ResponseWriter, r *http.Request) (result any, err error) {
	if !isFromPage(r) {
		return nil, adminError(http.StatusForbidden, errors.New(
			"neither Sec-Fetch-Site nor Origin says that the request comes from the status page; it is from another origin, or a program, which can use the admin API"))
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, adminError(http.StatusUnsupportedMediaType, errors.New("expected the Content-Type application/json"))
	}
	var order struct {
		Action, Queue string // the queue is its path, a slash and its prefix
		Token         string // to evict
		For           string // of a pause: how long; 0 is until it is resumed
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlSize)).Decode(&order); err != nil {
		return nil, adminError(http.StatusBadRequest, fmt.Errorf("reading the request: %w", err))
	}
	switch order.Action {
	case queueapi.Evict:
		result, err = evictTicket(r.Context(), order.Queue, order.Token, false)
	case queueapi.Pause, queueapi.Resume:
		result, err = changePause(r.Context(), order.Queue, order.Action, order.For)
	default:
		return nil, adminError(http.StatusBadRequest, fmt.Errorf("action %q: expected evict, pause or resume", order.Action))
	}
	if err == nil {
		ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
		user, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString("http.auth.user.id")
		s.logger.Info("status page: "+order.Action, zap.String("queue", order.Queue), zap.String("token", order.Token),
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
