//go:build unix

package integration_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// pageSize is more than what a connection holds, and less than the buffer of [pageSite].
const pageSize = 12_000_000

// left counts the requests that have left the queue.
const left = `requests_total{outcome="entered",queue="serializer_"}`

// pageSite serves a page from a file through a proxy, behind a queue.
func pageSite(t *testing.T, options string, s setup) *caddy {
	t.Helper()
	dir := testcaddy.TempDir(t)
	testcaddy.WriteFile(t, filepath.Join(dir, "page"), strings.Repeat("0123456789", pageSize/10))
	testcaddy.WriteFile(t, filepath.Join(dir, "small"), "small")
	s.env = map[string]string{"UPSTREAM": testcaddy.Serve(t, http.FileServer(http.Dir(dir)))}
	s.global, s.site = "metrics\n"+s.global, behindQueue("response_buffer 16MiB\n"+options)
	return start(t, s)
}

// Bug: a queue was as slow as its slowest reader: a client that did not read kept its
// turn although the handlers had finished. A stop waits at most grace_period for it.
func TestSlowReaderHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for _, client := range stalledClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			c := pageSite(t, "hold_timeout 10m", setup{tls: true, servers: writeIdle, global: "grace_period 500ms"})
			for range 3 {
				client.send(t, c, "GET", "/page")
			}
			c.wantMetric(left, "3")
			c.awaitTickets(0)
			if r := c.get("/small").Want(t, http.StatusOK); r.Text != "small" {
				t.Errorf("answered %q", r.Text)
			}
			c.Signal(syscall.SIGTERM)
			c.AwaitEnd()
			c.wantOnlyGuard()
		})
	}
}

// Such a client still gets everything, even if Caddy stops in the meantime.
func TestSlowReaderGetsEverything(t *testing.T) {
	t.Parallel()
	c := pageSite(t, "", setup{global: "grace_period 1m"})
	conn := dialSlowly(t, c)
	c.wantMetric(left, "1")
	c.Signal(syscall.SIGTERM)
	c.awaitStopping()
	text, err := io.ReadAll(conn)
	check(t, err)
	_, page, _ := bytes.Cut(text, []byte("\r\n\r\n"))
	if string(page) != strings.Repeat("0123456789", pageSize/10) {
		t.Errorf("got %d bytes of %d", len(page), pageSize)
	}
}

// dialSlowly asks for the page, on a connection that holds little of it.
func dialSlowly(t *testing.T, c *caddy) net.Conn {
	t.Helper()
	var dialer net.Dialer
	dialer.Control = func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) })
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", c.host())
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "GET /page HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
	check(t, err)
	return conn
}

// A client that hangs up while its response is drained is forgotten. TestTimeoutsHoldAfterWaiting shows
// that the write timeout holds then.
func TestSlowReaderGivesUp(t *testing.T) {
	t.Parallel()
	busy := regexp.MustCompile(`(?m)^caddy_http_requests_in_flight\{.*\} [1-9]`)
	allVersions(t, func(t *testing.T, client *http.Client) {
		c := pageSite(t, "", setup{tls: true})
		resp, err := client.Get(c.url + "/page")
		check(t, err)
		c.wantMetric(left, "1")
		check(t, resp.Body.Close())
		wait.Until(t, "no request is in flight", func() bool { return !busy.MatchString(c.Ask("/metrics")) })
	})
}

// Beyond the buffer's size, and without a buffer, the client's speed determines the turn.
func TestSlowReaderBeyondTheBuffer(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"0", "16KiB"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			c := pageSite(t, "response_buffer "+size, setup{})
			conn := dialSlowly(t, c)
			c.awaitTickets(1)
			next := c.getting("/small")
			wantNoAnswer(t, next, 300*time.Millisecond)
			_, err := io.Copy(io.Discard, conn)
			check(t, err)
			c.wantServed(next)
			c.awaitTickets(0)
		})
	}
}

// Handlers around and behind a queue answer as without one.
func TestResponsesThroughOtherHandlers(t *testing.T) {
	t.Parallel()
	const proxy = "reverse_proxy {$FILES} {\nheader_up Host {upstream_hostport}\n"
	around := map[string]string{
		"alone":     "%s",
		"encode":    "encode gzip\n%s",
		"intercept": "intercept {\nreplace_status 202\n}\n%s",
		"copied":    "intercept {\n@missing status 404\nhandle_response @missing {\ncopy_response_headers\ncopy_response 410\n}\n}\n%s",
		"header":    "header >X-Length {http.response.header.Content-Length}\n%s",
	}
	behind := map[string]string{
		"file":    "root {$HOME}\nfile_server",
		"encoded": "route {\nencode gzip\nroot {$HOME}\nfile_server\n}",
		"proxy":   proxy + "}",
		"recover": proxy + "@missing status 404\nhandle_response @missing {\nrespond \"no such page\" 404\n}\n}",
	}
	files := start(t, setup{site: "root {$HOME}\nfile_server"})
	var site strings.Builder
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(around)) {
		for _, next := range slices.Sorted(maps.Keys(behind)) {
			paths = append(paths, name+"/"+next)
			for queue, line := range map[string]string{"with": "serialize {\npath {$DIR}\n}\n", "without": ""} {
				fmt.Fprintf(&site, "handle_path /%s/%s/%s/* {\n%s\n}\n", name, next, queue, fmt.Sprintf(around[name], line+behind[next]))
			}
		}
	}
	c := start(t, setup{tls: true, site: site.String(), env: map[string]string{"FILES": files.host()}})
	for _, home := range []string{files.home, c.home} {
		for name, size := range map[string]int{"small.txt": 10, "page.txt": 250 << 10, "large.txt": 600 << 10} {
			path := filepath.Join(home, name)
			testcaddy.WriteFile(t, path, strings.Repeat("abcdefgh\n\n", size/10))
			check(t, os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
		}
	}
	requests := []string{"GET", "HEAD", "GET If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT", "GET Range: bytes=5-99999"}
	allVersions(t, func(t *testing.T, client *http.Client) {
		for _, path := range paths {
			for i := range 4 * len(requests) {
				file, request := []string{"small.txt", "page.txt", "large.txt", "missing.txt"}[i%4], requests[i/4]
				if request != "GET" && file != "page.txt" && file != "missing.txt" {
					continue
				}
				method, condition, _ := strings.Cut(request, " ")
				var header []string
				if field, value, ok := strings.Cut(condition, ": "); ok {
					header = []string{field, value}
				}
				var answers []string
				for _, queue := range []string{"without", "with"} {
					r := do(client, method, fmt.Sprintf("%s/%s/%s/%s", c.url, path, queue, file), "", header...)
					r.Header.Del("Date")
					if method == "HEAD" && r.Header.Get("Content-Length") == "0" {
						r.Header.Del("Content-Length") // HTTP/3 makes it up where a handler has written nothing in time
					}
					answers = append(answers, r.String())
				}
				if answers[0] != answers[1] {
					t.Errorf("%s /%s/%s:\nwithout a queue %.300s\nwith           %.300s", request, path, file, answers[0], answers[1])
				}
			}
		}
	})
}

// A second proxy reads the body that the first one still sends. Bug: two readers of one body damaged it.
// Bug of this test: the body was larger than the buffer, so no proxy got it.
func TestSecondProxyDuringUpload(t *testing.T) {
	t.Parallel()
	quick, body := newEdgeUpstream(t), strings.Repeat("0123456789", 30_000)
	c := start(t, setup{env: map[string]string{"QUICK": quick.addr}, site: "serialize {\npath {$DIR}\nbuffer 1KiB 1MiB\n}\n" +
		"reverse_proxy {$QUICK} {\n@bad status 503\nhandle_response @bad {\nreverse_proxy {$UPSTREAM}\n}\n}"})
	for i := range 8 {
		name := fmt.Sprint("upload", i)
		quick.expect(name, []edgeStep{{Do: "fail", Unread: true}})
		r := do(newClient(t, "1.1"), "POST", c.url+"/?name="+name, body, "X-Request", name)
		// As without a queue, what the first one has read is gone. The upstream may learn of that after the turn.
		if r.Err != nil || r.StatusCode != http.StatusBadGateway && (r.StatusCode != http.StatusOK || c.Hit(name).Body != body) {
			t.Errorf("answered %v", r)
		}
	}
	if hits := len(quick.take()); hits != 8 {
		t.Errorf("the first upstream had %d requests", hits)
	}
	c.awaitTickets(0)
	do(newClient(t, "1.1"), "POST", c.url+"/?name=after", body).Want(t, http.StatusOK)
}

// planned answers as the seed in its query says: it writes, flushes and gives a status at
// random, and may break the answer off.
func planned(w http.ResponseWriter, r *http.Request) {
	seed, _ := strconv.ParseUint(r.URL.Query().Get("seed"), 10, 64)
	g := rand.New(rand.NewPCG(seed, 0))
	chance := func(n int) bool { return g.IntN(n) == 0 }
	size := func() int { return []int{0, 1, 100, 2048, 4096, 20_000, 200_000}[g.IntN(7)] }
	head := w.Header()
	head["Date"] = nil // which differs
	head.Set("Trailer", "X-Declared")
	head.Set("Content-Type", []string{"text/x-test", "text/x-test", "text/event-stream"}[g.IntN(3)])
	if chance(4) {
		w.WriteHeader(http.StatusEarlyHints)
	}
	if chance(3) {
		w.WriteHeader([]int{200, 201, 404, 500, 204, 304}[g.IntN(6)])
	}
	for i := range g.IntN(8) {
		_, _ = w.Write(bytes.Repeat([]byte{'a' + byte(i)}, size()))
		if chance(2) {
			_ = http.NewResponseController(w).Flush()
		}
		head.Set("X-Late", "late")
	}
	head.Set("X-Declared", "declared")
	head.Set(http.TrailerPrefix+"X-Undeclared", "undeclared")
	if chance(8) {
		panic(http.ErrAbortHandler)
	}
}

// Whatever an upstream does, a client gets the same status, header, bytes and trailers as without
// a queue. Bug: over HTTP/3, trailers brought back fields that directives around had deleted.
func TestResponseIsTheSame(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.Serve(t, http.HandlerFunc(planned))
	var site strings.Builder
	for path, queue := range map[string]string{"none": "", "kept": "%s\n}", "small": "%s\nresponse_buffer 1KiB\n}", "off": "%s\nresponse_buffer 0\n}"} {
		fmt.Fprintf(&site, "handle /%s {\n%s\nreverse_proxy {$UPSTREAM}\n}\n", path, strings.ReplaceAll(queue, "%s", "serialize {\npath {$DIR}\nprefix "+path))
	}
	c := start(t, setup{tls: true, env: map[string]string{"UPSTREAM": upstream}, site: "header -Via\n" + site.String()})
	first := rand.Uint64N(1 << 32)
	allVersions(t, func(t *testing.T, client *http.Client) {
		ask := func(path string, seed uint64) (complete bool, header, body string) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/%s?seed=%d", c.url, path, seed), http.NoBody)
			check(t, err)
			resp, err := client.Do(r)
			if err != nil {
				return false, "", ""
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			resp.Header.Del("Date")
			resp.Header.Del("Content-Length") // which a server announces if it knows the length in time
			return err == nil, fmt.Sprint(resp.StatusCode, resp.Header, resp.Trailer), string(text)
		}
		for seed := first; seed < first+40; seed++ {
			complete, header, body := ask("none", seed)
			for _, path := range []string{"kept", "small", "off"} {
				isComplete, gotHeader, got := ask(path, seed)
				// How much of an answer comes before it breaks off depends on time.
				if isComplete != complete || complete && (gotHeader != header || got != body) || !complete && len(got) > len(body) && !strings.HasPrefix(got, body) {
					t.Errorf("seed %d, %s: complete %t, %s, %d bytes; without a queue %t, %s, %d bytes",
						seed, path, isComplete, gotHeader, len(got), complete, header, len(body))
				}
			}
		}
	})
}
