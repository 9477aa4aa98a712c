package response

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/quic-go/quic-go/http3"
)

var seedFlag = flag.Uint64("buffer.seed", 0, "the only seed of TestResponseIsTheSame; 0 is one at random, and those after it")

// A plan is a response as a handler writes it, step by step.
type plan struct {
	method string
	limit  int64
	head   http.Header
	steps  []step
	ending error // of the handler; http.ErrAbortHandler is thrown
	slow   bool  // the client reads slowly
}

type step struct {
	do   string
	size int
}

// Random writes, flushes and files give the same response as the plain writer, to slow and
// fast clients: status, header, bytes and trailers.
func TestResponseIsTheSame(t *testing.T) {
	seed, cases := *seedFlag, 1
	if seed == 0 {
		seed, cases = rand.Uint64N(1<<32), 200
	}
	servers := newServers(t)
	for i := range uint64(cases) {
		p := newPlan(rand.New(rand.NewPCG(seed+i, 0)))
		for _, server := range servers {
			want, got := server.get(t, p, false), server.get(t, p, true)
			if problem := compare(server.version, p, want, got); problem != "" {
				t.Fatalf("HTTP/%s, -buffer.seed %d: %s\n%+v\nplain    %s\nbuffered %s", server.version, seed+i, problem, *p, want, got)
			}
		}
	}
}

// compare returns what is wrong with a response.
func compare(version string, p *plan, want, got received) string {
	switch {
	case want.stuck:
		return "" // net/http itself does not end the response
	case p.ending == http.ErrAbortHandler:
		// How much comes before it breaks off depends on time.
		if !got.cut && want.cut && p.method != http.MethodHead && got.status != 204 && got.status != 304 { // which have no part
			return "it looks complete"
		}
		if !strings.HasPrefix(p.text(), got.body) {
			return "the part is wrong"
		}
		return ""
	case p.ending != nil && got.header.Get("X-Replaced") != "":
		if got.status != http.StatusBadGateway || got.body != "error route" && p.method != http.MethodHead ||
			p.answers() == (got.header.Get("X-Own") != "") { // what a handler sets before it fails is the error route's, too
			return "the error route's answer is wrong"
		}
		return ""
	}
	if want.header["Content-Type"] == nil {
		got.header.Del("Content-Type") // the plain writer does not know the body when it is flushed
	}
	if want.header["Content-Type"] != nil && p.head["Content-Type"] == nil && version == "3" {
		want.header.Del("Content-Type") // quic-go looks for one only before the status, and in small writes
		got.header.Del("Content-Type")
	}
	// A short response has room for this trailer if it was flushed, or if the trailer was there before the head.
	if want.trailer["X-Undeclared"] == nil || p.limit > 0 && len(got.body) <= 4096 && int64(len(got.body)) > p.limit {
		want.trailer.Del("X-Undeclared")
		got.trailer.Del("X-Undeclared")
	}
	if p.head["Content-Length"] == nil { // a server that knows the length announces it, unless there are trailers
		if n, err := strconv.Atoi(got.header.Get("Content-Length")); err == nil && n != len(got.body) && p.method != http.MethodHead {
			return "the length is wrong"
		}
		want.header.Del("Content-Length")
		got.header.Del("Content-Length")
	}
	if len(want.trailer)+len(got.trailer) == 0 {
		want.trailer, got.trailer = nil, nil
	}
	if !reflect.DeepEqual(want, got) {
		return "it differs"
	}
	return ""
}

func newPlan(g *rand.Rand) *plan {
	p := &plan{
		method: []string{"GET", "GET", "GET", "HEAD"}[g.IntN(4)],
		limit:  []int64{0, 1, 1000, 5000, 65536, 256 << 10}[g.IntN(6)],
		head:   http.Header{"X-Own": {"own"}},
		slow:   g.IntN(3) == 0,
	}
	if g.IntN(4) == 0 {
		p.head.Set("Trailer", "X-Declared")
	}
	switch g.IntN(8) {
	case 0:
		p.head.Set("Content-Type", "text/x-test")
	case 1:
		p.head.Set("Content-Type", "text/event-stream")
	}
	total := 0
	for range g.IntN(8) {
		s := step{do: []string{"write", "write", "write", "flush", "file", "copy", "late", "inform"}[g.IntN(8)]}
		s.size = []int{0, 1, 100, 1024, 2048, 2049, 4096, 20000, 200000}[g.IntN(9)]
		if s.do == "write" || s.do == "file" || s.do == "copy" {
			total += s.size
		}
		p.steps = append(p.steps, s)
	}
	if g.IntN(3) == 0 {
		status := []int{200, 201, 404, 500, 204, 304}[g.IntN(6)]
		at := g.IntN(len(p.steps) + 1)
		p.steps = append(p.steps[:at:at], append([]step{{"status", status}}, p.steps[at:]...)...)
	}
	switch g.IntN(8) {
	case 0:
		p.ending = errors.New("failed")
	case 1:
		p.ending = http.ErrAbortHandler
	}
	if p.ending == nil && g.IntN(4) == 0 {
		p.head.Set("Content-Length", strconv.Itoa(total))
	}
	return p
}

// text is what all steps write.
func (p *plan) text() string {
	total := 0
	for _, s := range p.steps {
		total += s.size
	}
	return string(new(pattern).next(total))
}

// answers reports whether the handler gives a status.
func (p *plan) answers() bool {
	return slices.ContainsFunc(p.steps, func(s step) bool {
		switch s.do {
		case "late", "inform":
			return false
		case "file", "copy":
			return s.size > 0
		}
		return true
	})
}

// ServeHTTP writes the response.
func (p *plan) ServeHTTP(w http.ResponseWriter, _ *http.Request) error {
	for name, values := range p.head {
		w.Header()[name] = values
	}
	text := new(pattern)
	for _, s := range p.steps {
		switch s.do {
		case "status":
			w.WriteHeader(s.size)
		case "inform":
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
		case "write":
			_, _ = w.Write(text.next(s.size))
		case "file":
			_, _ = io.CopyN(w, bytes.NewReader(text.next(s.size)), int64(s.size))
		case "copy":
			_, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(text.next(s.size))})
		case "flush":
			_ = http.NewResponseController(w).Flush()
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

// planServer answers by the plan of the moment, through a buffer or not.
type planServer struct {
	version string
	url     string
	client  http.RoundTripper
	caddy   caddyhttp.Server
	now     atomic.Pointer[asked]
}

type asked struct {
	*plan
	buffered bool
}

func newServers(t *testing.T) (servers []*planServer) {
	for _, version := range []string{"1.1", "2", "3"} {
		s := &planServer{version: version}
		s.start(t)
		servers = append(servers, s)
	}
	return servers
}

func (s *planServer) start(t *testing.T) {
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = s.version == "2"
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of statuses that are given twice
	server.StartTLS()
	t.Cleanup(server.Close)
	s.url = server.URL
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	if s.version != "3" {
		h := &http.Transport{TLSClientConfig: trusting, Protocols: new(http.Protocols), DisableCompression: true}
		h.Protocols.SetHTTP1(s.version == "1.1")
		h.Protocols.SetHTTP2(s.version == "2")
		s.client = h
		t.Cleanup(h.CloseIdleConnections)
		return
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + conn.LocalAddr().String()
	h3 := &http3.Server{Handler: s, TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: server.TLS.Certificates})}
	go func() { _ = h3.Serve(conn) }()
	client := &http3.Transport{TLSClientConfig: trusting.Clone(), DisableCompression: true}
	s.client = client
	t.Cleanup(func() { _ = client.Close(); _ = h3.Close(); _ = conn.Close() })
}

// ServeHTTP implements [http.Handler].
func (s *planServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &s.caddy)
	now := s.now.Load()
	var b Response
	var err error
	if now.buffered {
		b.Init(w, r, Options{Limit: now.limit, Finish: true, Cancel: func(error) {}})
		err = b.Deliver(b.Serve(caddyhttp.HandlerFunc(now.plan.ServeHTTP), r))
	} else {
		err = now.plan.ServeHTTP(w, r)
	}
	if err == nil {
		return
	}
	if now.buffered && b.state == keeping {
		w.Header().Set("X-Replaced", "yes")
		w.WriteHeader(http.StatusBadGateway)
	}
	_, _ = io.WriteString(w, "error route")
}

// get asks for the response of a plan.
func (s *planServer) get(t *testing.T, p *plan, buffered bool) (got received) {
	t.Helper()
	s.now.Store(&asked{p, buffered})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, p.method, s.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.RoundTrip(r)
	if err != nil {
		return received{cut: true, header: make(http.Header), stuck: ctx.Err() != nil}
	}
	defer resp.Body.Close()
	body, err := readAsPlanned(resp.Body, p.slow)
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
