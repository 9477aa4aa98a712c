package serialize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/statuspage"
	"github.com/orderly-http/caddy-orderly/serializer"
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

	// The names of the page under which its controls work, as in the matcher `host`. A page
	// of another site can let its own name lead here (DNS rebinding). Default: the hosts that
	// the server's routes match, `localhost` and loopback addresses.
	Hosts caddyhttp.MatchHost `json:"hosts,omitempty"`

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Status) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.serialize_status", New: func() caddy.Module { return new(Status) }}
}

// Provision sets up the handler.
func (s *Status) Provision(ctx caddy.Context) error {
	s.logger = ctx.Logger()
	return s.Hosts.Provision(ctx)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	serialize_status {
//	    controls [<host...>]
//	}
func (s *Status) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	controls := directive.Setting[*Status]{Name: "controls", Parse: func(s *Status, d *caddyfile.Dispenser) error {
		s.Controls, s.Hosts = true, nil
		for _, arg := range d.RemainingArgs() {
			host := (&url.URL{Host: arg}).Hostname() // without a port, and the brackets of an IPv6 address
			if host == "off" || host == "*" || strings.Contains(host, "/") {
				return d.Errf("controls %s: expected names of hosts, such as status.example.com", arg)
			}
			s.Hosts = append(s.Hosts, host)
		}
		return nil
	}}
	return directive.Settings[*Status]{controls}.ParseBlock(d, "serialize_status", s)
}

// ServeHTTP answers with the page, or performs the action of a control.
func (s *Status) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return s.servePage(w, r)
	case r.Method == http.MethodPost && s.Controls:
		return s.serveControl(w, r)
	}
	w.Header().Set("Allow", map[bool]string{false: "GET, HEAD", true: "GET, HEAD, POST"}[s.Controls])
	return caddyhttp.Error(http.StatusMethodNotAllowed, fmt.Errorf("status page: method %s is not allowed", r.Method))
}

func (s *Status) servePage(w http.ResponseWriter, r *http.Request) error {
	now := time.Now()
	data := statuspage.New(now, statusQueues(r.Context(), now), r.URL.Query().Get("filter"))
	data.Controls = s.Controls
	text, err := statuspage.Render(data)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, fmt.Errorf("status page: %w", err))
	}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store",
		"Content-Security-Policy": statuspage.Policy(), "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
	} {
		w.Header().Set(name, value)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	return nil
}

// statusQueues are the rows of the status page: the listed queues, and one for each prefix
// that several queues share. What is counted for a prefix cannot be told apart by queues, so
// only the row of a prefix's single queue has it.
func statusQueues(ctx context.Context, now time.Time) (rows []*statuspage.Queue) {
	ages, byPrefix := oldest(now), make(map[string][]*statuspage.Queue)
	for _, q := range queuesOf(ctx, nil) {
		row := &statuspage.Queue{Queue: q.Queue, Control: q.Path + "/" + q.Prefix}
		rows = append(rows, row)
		byPrefix[q.Prefix] = append(byPrefix[q.Prefix], row)
	}
	for _, s := range registered.allPrefixes() {
		if !s.isUsed() {
			continue
		}
		row := s.sumRow(ages[ageOf{s.Prefix, serializer.StateWaiting}])
		if same := byPrefix[s.prefix.Names]; !s.prefix.Many() && len(same) == 1 {
			row = same[0]
		} else {
			rows = append(rows, row)
		}
		row.Outcomes, row.History = s.Outcomes, s.History()
		row.Opens, row.Registered = s.opens(now)
	}
	return rows
}

// sumRow is the sum of a prefix's queues, as this process counts them. It can be paused
// unless it is used in several directories, or begins with a placeholder: then its pause
// would be that of all queues.
func (s *knownPrefix) sumRow(oldestWaiting time.Duration) *statuspage.Queue {
	q, paths := usageOf(s.handlers())
	q.Path, q.Prefix, q.PausedUntil = strings.Join(paths, ", "), s.Prefix, nil // each queue says that of itself
	q.Inside, q.Waiting = int(s.Inside.Load()), int(s.Waiting.Load())
	row := &statuspage.Queue{Queue: q, Sum: true, OldestWaiting: oldestWaiting}
	if name := s.prefix.Names; len(paths) == 1 && name != "*" {
		row.Control = paths[0] + "/" + name
	}
	return row
}

// serveControl performs the action of a request's query. The page gets JSON, also for an
// error.
func (s *Status) serveControl(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	name, queue := query.Get("action"), query.Get("queue")
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	user, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString("http.auth.user.id")
	var answer any
	var err error
	switch {
	case !s.isNamed(r):
		err = adminError(http.StatusForbidden, fmt.Errorf("host %q: the controls work only under the site's names, localhost and loopback addresses, "+
			"or those that stand after controls in serialize_status; if the page is yours under this name, write it there", r.Host))
	case !isFromPage(r):
		err = adminError(http.StatusForbidden, errors.New(
			"neither Sec-Fetch-Site nor Origin says that the request comes from the status page; it is from another origin, or a program, which can use the admin API, or a proxy in front does not pass on Host"))
	case actions[name].do == nil:
		err = adminError(http.StatusBadRequest, fmt.Errorf("action %q: expected evict, pause or resume", name))
	default:
		answer, err = perform(r.Context(), s.logger, name, queue, query, zap.String("client_ip", ip), zap.String("user", user))
	}
	if failed, ok := errors.AsType[caddy.APIError](err); ok {
		w.Header().Set("Content-Type", "application/json") // which is sent now
		w.WriteHeader(failed.HTTPStatus)
		return writeJSON(w, map[string]string{"error": failed.Err.Error()}, nil)
	}
	return writeJSON(w, answer, err)
}

// isFromPage reports whether a request comes from the page itself. A reader of the page is
// logged in, so pages of other sites could send requests in their name. Browsers state a
// request's origin, older ones in another header. A request without one is not from the page.
func isFromPage(r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if r.TLS != nil && strings.HasPrefix(origin, "http:") { // which the check below does not compare
		return false
	}
	return site == "same-origin" || site == "" && origin != "" && http.NewCrossOriginProtection().Check(r) == nil
}

// isNamed reports whether the request names the page as its operator does. A handler does not
// know its site, so the hosts of all routes of the server count. Those of routes further
// inside do not.
func (s *Status) isNamed(r *http.Request) bool {
	if len(s.Hosts) > 0 {
		return s.Hosts.Match(r)
	}
	address := url.URL{Host: r.Host}
	if ip, err := netip.ParseAddr(address.Hostname()); err == nil && ip.IsLoopback() || strings.EqualFold(address.Hostname(), "localhost") {
		return true
	}
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return server != nil && slices.ContainsFunc(server.Routes, func(route caddyhttp.Route) bool {
		return slices.ContainsFunc(hostMatchers(route), func(hosts *caddyhttp.MatchHost) bool { return hosts.Match(r) })
	})
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Status)(nil)
	_ caddyfile.Unmarshaler       = (*Status)(nil)
	_ caddyhttp.MiddlewareHandler = (*Status)(nil)
)
