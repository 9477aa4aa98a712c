package serialize

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/quic-go/quic-go/http3"
)

var responseSeed = flag.Uint64("response.seed", 0, "the only seed of TestResponseIsTheSame; 0 is one at random, and those after it")

// A responsePlan is a response as a handler writes it, step by step.
type responsePlan struct {
	method string
	size   string // of response_buffer
	head   http.Header
	steps  []responseStep
	ending error // of the handler; http.ErrAbortHandler is thrown
	slow   bool  // the client reads slowly
}

type responseStep struct {
	do   string
	size int
}

// Random writes, flushes and pauses give the same response as without a queue, to slow
// and fast clients: status, header, bytes and trailers.
func TestResponseIsTheSame(t *testing.T) {
	seed, cases := *responseSeed, 1
	if seed == 0 {
		seed, cases = rand.Uint64N(1<<32), 150
	}
	servers := newResponseServers(t)
	for i := range uint64(cases) {
		plan := newResponsePlan(rand.New(rand.NewPCG(seed+i, 0)))
		for version, server := range servers {
			want := server.get(t, plan, false)
			if want.stuck {
				t.Logf("HTTP/%s, -response.seed %d: without a queue, net/http itself does not end the response", version, seed+i)
				continue
			}
			got := server.get(t, plan, true)
			if version == "3" && want.header["Content-Type"] == nil {
				got.header.Del("Content-Type") // HTTP/3 detects no type of large parts after a status
			}
			if want.cut && plan.ending == http.ErrAbortHandler {
				// How much of a response comes before it breaks off depends on time.
				want, got = want.broken(plan), got.broken(plan)
			}
			if !reflect.DeepEqual(want, got) {
				t.Fatalf("HTTP/%s, -response.seed %d: %+v\nwithout a queue %s\nwith           %s", version, seed+i, *plan, want, got)
			}
		}
	}
}

func newResponsePlan(g *rand.Rand) *responsePlan {
	plan := &responsePlan{
		method: []string{"GET", "GET", "GET", "HEAD"}[g.IntN(4)],
		size:   []string{"0", "1", "1000", "5000", "65536", `"256KiB"`}[g.IntN(6)],
		head:   make(http.Header),
		slow:   g.IntN(3) == 0,
	}
	if g.IntN(4) == 0 {
		plan.head.Set("Trailer", "X-Declared")
	}
	if g.IntN(4) == 0 {
		plan.head.Set("Content-Type", "text/x-test")
	}
	total := 0
	for range g.IntN(8) {
		step := responseStep{do: []string{"write", "write", "write", "flush", "pause", "file", "copy", "late", "inform"}[g.IntN(9)]}
		step.size = []int{0, 1, 100, 1024, 2048, 2049, 4096, 20000, 200000}[g.IntN(9)]
		if step.do == "write" || step.do == "file" || step.do == "copy" {
			total += step.size
		}
		plan.steps = append(plan.steps, step)
	}
	if g.IntN(3) == 0 {
		status := []int{200, 201, 404, 500, 204, 304}[g.IntN(6)]
		at := g.IntN(len(plan.steps) + 1)
		plan.steps = append(plan.steps[:at:at], append([]responseStep{{"status", status}}, plan.steps[at:]...)...)
	}
	switch g.IntN(10) {
	case 0:
		plan.ending = errors.New("failed")
	case 1:
		plan.ending = http.ErrAbortHandler
	}
	if plan.ending == nil && g.IntN(4) == 0 {
		plan.head.Set("Content-Length", strconv.Itoa(total))
	}
	return plan
}

// ServeHTTP writes the response.
func (p *responsePlan) ServeHTTP(w http.ResponseWriter, _ *http.Request) error {
	for name, values := range p.head {
		w.Header()[name] = values
	}
	text := newPattern()
	for _, step := range p.steps {
		switch step.do {
		case "status":
			w.WriteHeader(step.size)
		case "inform":
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
		case "write":
			_, _ = w.Write(text.next(step.size))
		case "file":
			_, _ = io.CopyN(w, bytes.NewReader(text.next(step.size)), int64(step.size))
		case "copy":
			_, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(text.next(step.size))})
		case "flush":
			_ = http.NewResponseController(w).Flush()
		case "pause":
			time.Sleep(time.Duration(step.size) * time.Nanosecond)
		case "late":
			w.Header().Set("X-Late", "late")
		}
	}
	w.Header().Set("X-Declared", "declared")
	w.Header().Set(http.TrailerPrefix+"X-Undeclared", "undeclared")
	if p.ending == http.ErrAbortHandler {
		panic(p.ending)
	}
	return p.ending
}

// pattern is a text in which every place is different from those around it.
type pattern struct{ at int }

func newPattern() *pattern { return new(pattern) }

func (p *pattern) next(size int) []byte {
	text := make([]byte, size)
	for i := range text {
		text[i] = byte(p.at ^ p.at>>8 ^ p.at>>16)
		p.at++
	}
	return text
}

// received is what a client gets.
type received struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
	cut     bool
	stuck   bool // it never ends
}

func (r received) String() string {
	return fmt.Sprintf("%d, %v, %d bytes, trailer %v, cut off %t", r.status, r.header, len(r.body), r.trailer, r.cut)
}

// broken returns what does not depend on time in a response that breaks off: its
// body is the beginning of what was written.
func (r received) broken(p *responsePlan) received {
	total := 0
	for _, step := range p.steps {
		total += step.size
	}
	if text := string(newPattern().next(total)); strings.HasPrefix(text, r.body) {
		r.body = text
	}
	return received{body: r.body, cut: true}
}

// responseServer answers by the plan of the moment, with a queue or without.
type responseServer struct {
	version  string
	url      string
	tls      *tls.Config // of clients
	now      atomic.Pointer[responseAsked]
	handlers map[string]*Handler // by the size of the buffer
	caddy    caddyhttp.Server
}

func newResponseServers(t *testing.T) map[string]*responseServer {
	handlers := make(map[string]*Handler)
	for _, size := range []string{"0", "1", "1000", "5000", "65536", `"256KiB"`} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		t.Cleanup(cancel)
		s := &Handler{Path: t.TempDir(), EngineRaw: []byte(`{"engine": "memory"}`), ResponseBuffer: new(Size)}
		if err := s.ResponseBuffer.UnmarshalJSON([]byte(size)); err != nil {
			t.Fatal(err)
		}
		if err := s.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Cleanup() })
		handlers[size] = s
	}
	servers := make(map[string]*responseServer)
	for _, version := range []string{"1.1", "2", "3"} {
		s := &responseServer{handlers: handlers, version: version}
		s.start(t)
		servers[version] = s
	}
	return servers
}

func (s *responseServer) start(t *testing.T) {
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = s.version == "2"
	server.StartTLS()
	t.Cleanup(server.Close)
	s.url, s.tls = server.URL, server.Client().Transport.(*http.Transport).TLSClientConfig
	if s.version != "3" {
		return
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + conn.LocalAddr().String()
	h3 := &http3.Server{Handler: s, TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: server.TLS.Certificates})}
	go func() { _ = h3.Serve(conn) }()
	t.Cleanup(func() { _ = h3.Close(); _ = conn.Close() })
}

// transport is a client with connections of its own.
func (s *responseServer) transport() (client http.RoundTripper, closeIt func()) {
	if s.version == "3" {
		h3 := &http3.Transport{TLSClientConfig: s.tls.Clone(), DisableCompression: true}
		return h3, func() { _ = h3.Close() }
	}
	h := &http.Transport{TLSClientConfig: s.tls.Clone(), Protocols: new(http.Protocols), DisableCompression: true}
	h.Protocols.SetHTTP1(s.version == "1.1")
	h.Protocols.SetHTTP2(s.version == "2")
	return h, h.CloseIdleConnections
}

// responseAsked is what a server answers now.
type responseAsked struct {
	plan  *responsePlan
	queue bool
}

// ServeHTTP implements [http.Handler].
func (s *responseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &s.caddy)
	now := s.now.Load()
	handler := caddyhttp.HandlerFunc(now.plan.ServeHTTP)
	var err error
	if now.queue {
		err = s.handlers[now.plan.size].ServeHTTP(w, r, handler)
	} else {
		err = handler(w, r)
	}
	if err != nil {
		_, _ = io.WriteString(w, "error route")
	}
}

// get asks for the response of a plan, over a connection of its own.
func (s *responseServer) get(t *testing.T, plan *responsePlan, queue bool) (got received) {
	t.Helper()
	s.now.Store(&responseAsked{plan, queue})
	transport, closeIt := s.transport()
	defer closeIt()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, plan.method, s.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return received{cut: true}
	}
	defer resp.Body.Close()
	body, err := readAsPlanned(resp.Body, plan.slow)
	resp.Header.Del("Date")
	if s.version == "3" { // HTTP/3 sends headers that are set too late, unless much too late
		resp.Header.Del("X-Late")
		resp.Header.Del("X-Declared")
		resp.Header.Del("Link")
	}
	return received{resp.StatusCode, resp.Header, resp.Trailer, string(body), err != nil, ctx.Err() != nil}
}

func readAsPlanned(from io.Reader, slow bool) ([]byte, error) {
	if !slow {
		return io.ReadAll(from)
	}
	var all bytes.Buffer
	for {
		_, err := io.CopyN(&all, from, 32<<10)
		if err == io.EOF {
			return all.Bytes(), nil
		}
		if err != nil {
			return all.Bytes(), err
		}
		time.Sleep(time.Millisecond)
	}
}

// net/http refuses what is longer than announced, and so must the buffer:
// otherwise the sender, whose writes are different, would lose what comes
// before that.
func TestResponseLongerThanAnnounced(t *testing.T) {
	w, err := serveOnce(t, 0, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Length", "5")
		_, _ = w.Write([]byte("hello"))
		if _, err := w.Write([]byte("more")); !errors.Is(err, http.ErrContentLength) {
			t.Errorf("writing: %v", err)
		}
		return nil
	})
	if err != nil || w.Body.String() != "hello" {
		t.Errorf("written: %q, %v", w.Body, err)
	}
}
