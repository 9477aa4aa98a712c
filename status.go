package orderly

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
)

// SerializeStatus answers with a page that shows the queues of this process
// live: who is inside and who waits, what was refused, and the waiting times
// of the last ten minutes. The page is one file and loads nothing else. Clients
// whose Accept header prefers JSON get the same data as JSON.
//
// The page names clients and queues, so it belongs behind an authentication,
// or on an address that only its readers reach.
type SerializeStatus struct {
	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (SerializeStatus) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.serialize_status",
		New: func() caddy.Module { return new(SerializeStatus) },
	}
}

// Provision sets up the handler.
func (s *SerializeStatus) Provision(ctx caddy.Context) error {
	s.logger = ctx.Logger()
	return nil
}

// parseSerializeStatus sets up the serialize_status directive. Syntax:
//
//	serialize_status [<matcher>]
func parseSerializeStatus(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	s := new(SerializeStatus)
	return s, s.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	serialize_status
func (s *SerializeStatus) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if d.NextArg() {
		return d.Errf("serialize_status: unexpected argument %q", d.Val())
	}
	for d.NextBlock(0) {
		return unknownSubdirective(d, "serialize_status", nil)
	}
	return nil
}

// ServeHTTP answers with the page, or with its data.
func (s *SerializeStatus) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return caddyhttp.Error(http.StatusMethodNotAllowed, fmt.Errorf("status page: method %s is not allowed", r.Method))
	}
	data, err := json.Marshal(s.look(r.Context(), time.Now()))
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, fmt.Errorf("status page: %w", err))
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Add("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	if prefersJSON(r.Header.Values("Accept")) {
		header.Set("Content-Type", "application/json")
		return send(w, r, append(data, '\n'))
	}
	page := statusPage()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", page.policy)
	header.Set("Referrer-Policy", "no-referrer")
	return send(w, r, page.head, data, page.tail)
}

// send writes a body of which all parts are there already.
func send(w http.ResponseWriter, r *http.Request, parts ...[]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	w.Header().Set("Content-Length", strconv.Itoa(size))
	if r.Method == http.MethodHead {
		return nil
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// prefersJSON reports whether a client would rather have JSON than HTML.
func prefersJSON(accept []string) bool {
	return quality(accept, "application/json") > quality(accept, "text/html")
}

// quality is how much a client wants a type, 0 to 1, by the most specific of
// the ranges in its Accept header.
func quality(accept []string, mime string) (q float64) {
	kind, _, _ := strings.Cut(mime, "/")
	best := 0
	for _, text := range strings.Split(strings.Join(accept, ","), ",") {
		name, params, _ := strings.Cut(text, ";")
		specific := slices.Index([]string{"*/*", kind + "/*", mime}, strings.ToLower(strings.TrimSpace(name))) + 1
		if specific > best {
			best, q = specific, qualityParam(params)
		}
	}
	return q
}

func qualityParam(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		if q, err := strconv.ParseFloat(value, 64); err == nil {
			return min(max(q, 0), 1)
		}
	}
	return 1
}

// statusData is what the page shows.
type statusData struct {
	Time     time.Time     `json:"time"`
	Host     string        `json:"host"`
	PID      int           `json:"pid"`
	Interval int           `json:"interval_seconds"` // of each number in recent
	Queues   []statusQueue `json:"queues"`

	// Lines are the queues that cannot be read, and those that have tickets, the
	// longest first. There may be very many, one for each user, so only the first
	// of them are here, and only the first tickets of each.
	Lines        []listedQueue `json:"lines"`
	LinesOmitted int           `json:"lines_omitted"`

	// Errors say what could not be read.
	Errors []string `json:"errors"`
}

// statusQueue is one configured prefix, in this process.
type statusQueue struct {
	Prefix   string           `json:"prefix"`
	Paths    []string         `json:"paths"`
	Inside   int64            `json:"inside"`
	Waiting  int64            `json:"waiting"`
	Outcomes map[string]int64 `json:"outcomes"` // requests since the process began
	Recent   recentCounts     `json:"recent"`
}

// The most that the page shows.
const (
	maxStatusLines   = 50
	maxStatusTickets = 25
)

// look gathers what the page shows.
func (s *SerializeStatus) look(ctx context.Context, now time.Time) statusData {
	host, _ := os.Hostname()
	data := statusData{
		Time: now.UTC(), Host: host, PID: os.Getpid(), Interval: int(recentSpan / time.Second),
		Queues: make([]statusQueue, 0), Lines: make([]listedQueue, 0), Errors: make([]string, 0),
	}
	for _, r := range allRecords() {
		data.Queues = append(data.Queues, r.status(now))
	}
	lines := allQueues(ctx)
	for _, q := range lines {
		if q.Error != "" && !slices.Contains(data.Errors, q.Error) {
			s.logger.Error("status page", zap.String("queue", q.Prefix), zap.String("path", q.Path), zap.String("error", q.Error))
			data.Errors = append(data.Errors, q.Error)
		}
	}
	lines = slices.DeleteFunc(lines, func(q listedQueue) bool { return len(q.Tickets) == 0 && q.Error == "" })
	slices.SortStableFunc(lines, func(a, b listedQueue) int {
		if (a.Error == "") != (b.Error == "") {
			return cmp.Compare(b.Error, a.Error)
		}
		return cmp.Compare(len(b.Tickets), len(a.Tickets))
	})
	for _, q := range lines[:min(len(lines), maxStatusLines)] {
		q.Tickets = q.Tickets[:min(len(q.Tickets), maxStatusTickets)]
		data.Lines = append(data.Lines, q)
	}
	data.LinesOmitted = len(lines) - len(data.Lines)
	return data
}

// status is what the page shows of a prefix.
func (r *record) status(now time.Time) statusQueue {
	q := statusQueue{
		Prefix:   r.prefix,
		Paths:    r.directories(),
		Inside:   metricValue(r.meters.inside),
		Waiting:  metricValue(r.meters.waiting),
		Outcomes: make(map[string]int64),
		Recent:   r.recent.counts(now),
	}
	for outcome, counter := range r.meters.outcomes {
		q.Outcomes[outcome] = metricValue(counter)
	}
	return q
}

// metricValue reads a counter or gauge.
func metricValue(metric prometheus.Metric) int64 {
	var m dto.Metric
	if err := metric.Write(&m); err != nil {
		return 0
	}
	return int64(m.GetGauge().GetValue() + m.GetCounter().GetValue())
}

//go:embed status.html
var statusHTML []byte

// page is the status page around its data.
type page struct {
	head, tail []byte
	policy     string // Content-Security-Policy
}

// statusPage prepares the page. The policy allows just the style and script
// that are in the file, by their hashes, so nothing that comes with the data
// could ever run.
var statusPage = sync.OnceValue(func() page {
	head, tail, _ := bytes.Cut(statusHTML, []byte("{{data}}"))
	return page{
		head: head,
		tail: tail,
		policy: "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
			"; style-src " + sourceHash("<style>", "</style>") + "; script-src " + sourceHash("<script>", "</script>"),
	}
})

// sourceHash is how a policy calls the text between two tags.
func sourceHash(open, end string) string {
	_, text, _ := bytes.Cut(statusHTML, []byte(open))
	text, _, _ = bytes.Cut(text, []byte(end))
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Interface guards
var (
	_ caddy.Provisioner           = (*SerializeStatus)(nil)
	_ caddyfile.Unmarshaler       = (*SerializeStatus)(nil)
	_ caddyhttp.MiddlewareHandler = (*SerializeStatus)(nil)
)
