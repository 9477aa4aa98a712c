package main

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// program is a Caddy to measure instead of that of this checkout.
var program = os.Getenv("CADDY")

// contest is servers that serve in turn, each time as a new process.
type contest struct {
	home    string // for files that are thrown away, on a disk: lock files and records are among them
	names   []string
	configs []config
	path    string // of the requests
	headers []string
	length  time.Duration
}

// newContest has a Caddy without a queue and one with each engine take part.
func newContest(b *testing.B) *contest {
	b.Helper()
	home, err := os.MkdirTemp("/var/tmp", "orderly-bench-")
	must(b, err)
	b.Cleanup(func() { os.RemoveAll(home) })
	if err := os.Chmod(home, 0o755); err != nil { // servers may go on as another user
		b.Fatal(err)
	}
	caddy := cmp.Or(program, filepath.Join(home, "caddy"))
	if program == "" {
		if out, err := exec.Command("go", "build", "-C", "..", "-buildvcs=false", "-o", caddy, "./cmd/caddy").CombinedOutput(); err != nil {
			b.Fatalf("building caddy: %v\n%s", err, out)
		}
	}
	c := &contest{home: home, length: time.Second}
	c.add("Caddy,no_queue", config{Program: caddy})
	c.addLines("Orderly,memory", "serialize {\n engine memory\n}")
	c.addLines("Orderly,lock_files", "serialize")
	return c
}

// addLines adds a Caddy with lines of Orderly.
func (c *contest) addLines(name, lines string) {
	c.add(name, config{Program: c.configs[0].Program, Lines: lines})
}

func (c *contest) add(name string, of config) {
	c.names, c.configs = append(c.names, name), append(c.configs, of)
}

// proxyTo has all servers stand before an upstream.
func (c *contest) proxyTo(upstream, php string) {
	for i := range c.configs {
		c.configs[i].Upstream, c.configs[i].PHP = upstream, php
	}
}

// run measures each server with as many clients.
func (c *contest) run(b *testing.B, clients ...int) {
	for _, n := range clients {
		for i, name := range c.names {
			b.Run(fmt.Sprintf("clients=%d/server=%s", n, name), func(b *testing.B) {
				s := startServer(b, c.configs[i], c.home)
				cookies := c.visit(b, s)
				for b.Loop() {
					c.load(b, s, n, cookies)
				}
			})
		}
	}
}

// result is what load generator wrk writes at the end.
const result = `done = function(summary, latency)
	local e = summary.errors
	io.write(string.format("RESULT %d %d %d %f %f", summary.requests, summary.duration,
		e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99)))
end`

// visit asks a server as a browser does, until the browser has cookies and has sent them back. All
// clients send these.
func (c *contest) visit(b *testing.B, s *server) (cookies string) {
	b.Helper()
	for range 2 {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+s.Addr+c.path, nil)
		must(b, err)
		for _, header := range append(c.headers, "Accept: text/html", "Cookie: "+cookies) {
			name, value, _ := strings.Cut(header, ": ")
			r.Header.Set(name, value)
		}
		answer, err := http.DefaultClient.Do(r)
		must(b, err)
		_ = answer.Body.Close()
		for _, cookie := range answer.Cookies() {
			cookies = cookie.Name + "=" + cookie.Value
		}
	}
	return cookies
}

// load has clients ask a server for a while. Each sends its next request when it has the answer to the
// last.
func (c *contest) load(b *testing.B, s *server, clients int, cookies string) {
	b.Helper()
	script := filepath.Join(s.Dir, "result.lua")
	must(b, os.WriteFile(script, []byte(result), 0o600))
	before := s.processorTime(b)
	args := []string{"--threads", "1", "--connections", strconv.Itoa(clients), "--timeout", "60", "--duration", c.length.String(), "--script", script}
	for _, header := range append(c.headers, "Cookie: "+cookies) {
		args = append(args, "--header", header)
	}
	out, err := exec.Command(find(b, "wrk"), append(args, "http://"+s.Addr+c.path)...).CombinedOutput()
	worked := s.processorTime(b) - before
	var requests, micros, bad int
	var median, late float64 // microseconds
	_, text, _ := strings.Cut(string(out), "RESULT ")
	if _, scanErr := fmt.Sscan(text, &requests, &micros, &bad, &median, &late); cmp.Or(err, scanErr) != nil || bad > 0 || requests == 0 {
		b.Fatalf("%d of %d requests failed: %v\n%s", bad, bad+requests, cmp.Or(err, scanErr), out)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(requests)/float64(micros)*1e6, "requests/s")
	b.ReportMetric(median/1e3, "median-ms")
	b.ReportMetric(late/1e3, "p99-ms")
	b.ReportMetric(float64(worked.Microseconds())/float64(requests), "processor-µs")
}

// The queue in front of the fastest handler there is, so all that it costs is seen.
func BenchmarkRespond(b *testing.B) { newContest(b).run(b, 1, 16, 32) }

// What each ability costs those who use it, beside a turn without it. With keys, all requests but
// the first are repetitions.
func BenchmarkAbilities(b *testing.B) {
	c := newContest(b)
	for _, of := range []struct{ ability, lines string }{
		{"timeout_of_the_request", "serialize {\n engine memory\n timeout 30s {http.request.header.Wait}\n}"},
		{"slots", "serialize {\n engine memory\n slots one two\n}"},
		{"keepalive", "serialize {\n engine memory\n keepalive\n}"},
		{"hold_at_least", "serialize {\n engine memory\n concurrency 64\n hold_at_least 1ms\n}"},
		{"waiting_page", "serialize {\n engine memory\n waiting_page\n}"},
		{"visit", "serialize {\n engine memory\n visit 1m\n waiting_page\n}"},
		{"unique_ids", "unique_ids"},
		{"unique_ids,header", "unique_ids {\n header X-Request-Id\n}"},
		{"once,no_key", "once {\n key {http.request.header.Other}\n scope none\n methods GET\n}"},
		{"once,repetition", "once {\n scope none\n methods GET\n}"},
	} {
		c.addLines(of.ability, of.lines)
	}
	c.headers = []string{"Wait: 5", `Idempotency-Key: "7f3a90c2"`}
	c.run(b, 16)
}

// The queues of Caddy and HAProxy in front of one upstream, which answers at once or takes a moment.
// Of HAProxy's threads, more get into each other's way at maxconn 1.
func BenchmarkProxy(b *testing.B) {
	c := newContest(b)
	c.add("HAProxy,no_queue", config{Program: "haproxy"})
	c.add("HAProxy,maxconn_1", config{Program: "haproxy", One: true})
	c.add("HAProxy,maxconn_1,one_thread", config{Program: "haproxy", One: true, Threads: 1})
	c.proxyTo(startBackend(b), "")
	for _, takes := range []time.Duration{0, 500 * time.Microsecond} {
		c.path = fmt.Sprintf("/?ns=%d", takes)
		b.Run("upstream="+takes.String(), func(b *testing.B) { c.run(b, 1, 32) })
	}
}

// A PHP script of five milliseconds behind each queue: what users feel. With mod_qos, a round of 32
// clients takes more than a second and a half.
func BenchmarkPHP(b *testing.B) {
	c := newContest(b)
	c.add("HAProxy,no_queue", config{Program: "haproxy"})
	c.add("HAProxy,maxconn_1", config{Program: "haproxy", One: true})
	c.add("Apache,no_queue", config{Program: "apache2"})
	c.add("Apache,mod_qos", config{Program: "apache2", One: true})
	php := startPHP(b, c.home)
	c.proxyTo(php.Addr, php.Dir)
	c.path, c.length = "/work.php?ns=5000000", 3*time.Second
	c.run(b, 1, 32)
}
