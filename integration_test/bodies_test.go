//go:build unix

package integration_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Bodies of any size arrive complete, with a length or chunked, in pieces of any size,
// unless they are larger than the buffers.
func TestUploads(t *testing.T) {
	t.Parallel()
	const memory, disk = 4 << 10, 20 << 10
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{tls: true, upstream: upstream, site: `
		serialize {
			path {$DIR}
			buffer 4KiB 20KiB
		}
		reverse_proxy {$UPSTREAM}`})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	sizes := []int{0, 1, memory - 1, memory, memory + 1, memory + disk - 1, memory + disk, memory + disk + 1, memory + disk + 2}
	for range 10 {
		sizes = append(sizes, random.IntN(2*(memory+disk)))
	}
	for i, size := range sizes {
		body := make([]byte, size)
		for at := range body {
			body[at] = byte(random.Uint32())
		}
		for _, chunked := range []bool{false, true} {
			bothVersions(t, func(t *testing.T, client *http.Client) {
				name := fmt.Sprintf("%s,%d,%d,%t", t.Name()[len(t.Name())-1:], i, size, chunked)
				reader := io.Reader(bytes.NewReader(body))
				if chunked {
					reader = &pieces{random, body} // hides the length
				}
				status := http.StatusOK
				if size > memory+disk {
					status = http.StatusRequestEntityTooLarge
				}
				doContext(t.Context(), client, "POST", c.url+"/?name="+name, reader).Want(t, status)
				if status != http.StatusOK {
					upstream.WantNever(name)
					return
				}
				if v := upstream.Visit(name); v.Body != string(body) {
					t.Errorf("%s: the upstream got %d bytes, or others", name, len(v.Body))
				}
			})
		}
	}
}

// pieces is a body that comes in pieces of random lengths.
type pieces struct {
	random *rand.Rand
	rest   []byte
}

func (b *pieces) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1+b.random.IntN(10_000))], b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// A client that waits for 100 Continue before it sends its body receives it.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{site: serialized, upstream: upstream})
	client := newClient(t, "1.1")
	client.Transport.(*http.Transport).ExpectContinueTimeout = 2 * wait.Patience
	for _, size := range []int{100, 1 << 20} {
		name := fmt.Sprint("size", size)
		do(client, "PUT", c.url+"/?name="+name, strings.Repeat("x", size), "Expect", "100-continue").Want(t, http.StatusOK)
		if got := len(upstream.Visit(name).Body); got != size {
			t.Errorf("the upstream got %d bytes, want %d", got, size)
		}
	}
}

// A client that sends its body slowly does not hold the queue: it gets its ticket when
// the body is complete. Bug: a body larger than buffer held the queue for the whole
// upload.
func TestSlowSender(t *testing.T) {
	t.Parallel()
	for _, sizes := range []struct{ whole, first int }{{10, 5}, {200 << 10, 100 << 10}} {
		t.Run(fmt.Sprint(sizes.whole), func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{site: serialized, upstream: upstream})
			body := strings.Repeat("x", sizes.whole)
			conn := c.dial()
			_, err := io.WriteString(conn, head("slow", sizes.whole)+body[:sizes.first])
			check(t, err)
			// Long enough for the head to be read, even if nothing shows it.
			time.Sleep(100 * time.Millisecond)
			c.get("/?name=quick").Want(t, http.StatusOK)
			c.wantNoTickets()
			upstream.WantNever("slow")
			_, err = io.WriteString(conn, body[sizes.first:])
			check(t, err)
			if got := answerOf(t, conn); got != http.StatusOK || len(upstream.Visit("slow").Body) != sizes.whole {
				t.Errorf("answered %d, the upstream got %d bytes", got, len(upstream.Visit("slow").Body))
			}
		})
	}
}

// A body that never ends is ended by the server's own timeout.
func TestStalledSender(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{site: serialized, upstream: upstream, servers: "timeouts {\n read_body 1s\n}"})
	conn := c.dial()
	_, err := io.WriteString(conn, head("stalled", 200<<10)+strings.Repeat("x", 100<<10))
	check(t, err)
	if got := answerOf(t, conn); got != http.StatusRequestTimeout {
		t.Errorf("answered %d, want 408", got)
	}
	upstream.WantNever("stalled")
	c.wantNoTickets()
}

// A body that is larger than the buffers is refused, at the latest when that shows, and
// the log names the option.
func TestLargerThanTheBuffers(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			buffer 1KiB 4KiB
		}
		reverse_proxy {$UPSTREAM}`})
	for name, body := range map[string]io.Reader{
		"announced": strings.NewReader(strings.Repeat("x", 20<<10)),
		"chunked":   io.MultiReader(strings.NewReader(strings.Repeat("x", 20<<10))),
	} {
		doContext(t.Context(), newClient(t, "1.1"), "POST", c.url+"/?name="+name, body).Want(t, http.StatusRequestEntityTooLarge)
		upstream.WantNever(name)
	}
	c.awaitEntry("a line that names the option", func(e entry) bool {
		text, _ := e["msg"].(string)
		return strings.Contains(text, "buffer off")
	})
	c.wantNoTickets()
}

// With `buffer off`, the ticket is taken when the head is here. The client's speed is then
// that of the turn. One that breaks its upload off ends the turn when the handlers return.
func TestBufferOff(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			buffer off
		}
		reverse_proxy {$UPSTREAM}`})
	conn := c.dial()
	_, err := io.WriteString(conn, head("large", 20<<10)+strings.Repeat("x", 10<<10))
	check(t, err)
	upstream.AwaitEntry("large")
	next := c.getting("/?name=next")
	c.awaitTickets(2)
	_, err = io.WriteString(conn, strings.Repeat("x", 10<<10))
	check(t, err)
	if got := answerOf(t, conn); got != http.StatusOK || len(upstream.Visit("large").Body) != 20<<10 {
		t.Errorf("answered %d, the upstream got %d bytes", got, len(upstream.Visit("large").Body))
	}
	(<-next).Want(t, http.StatusOK)
	upstream.WantOrder("large", "next")

	broken := c.dial()
	_, err = io.WriteString(broken, head("broken", 20<<10)+strings.Repeat("x", 10<<10))
	check(t, err)
	upstream.AwaitEntry("broken")
	check(t, broken.Close())
	c.get("/?name=after").Want(t, http.StatusOK)
	c.wantNoTickets()
}

// A client that hangs up while it waits is noticed although its body has not been read.
func TestHangUpBeforeAStreamedBody(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			buffer off
		}
		reverse_proxy {$UPSTREAM}`})
	holder := bringInside(t, upstream, func() testcaddy.Answer { return c.get("/?name=holder&gate") })
	conn := c.dial()
	_, err := io.WriteString(conn, head("gone", 20<<10)+strings.Repeat("x", 10<<10))
	check(t, err)
	c.awaitTickets(2)
	check(t, conn.Close())
	c.awaitTickets(1)
	release(t, upstream, holder)
	upstream.WantNever("gone")
}

// A request that asks for incremental forwarding (RFC 10036) is refused, unless its queue
// streams bodies.
func TestIncremental(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize /streams {
			path {$DIR}
			prefix streams_
			buffer off
		}
		serialize /keeps {
			path {$DIR}
			prefix keeps_
		}
		reverse_proxy {$UPSTREAM}`})
	client := newClient(t, "1.1")
	do(client, "POST", c.url+"/streams?name=streams", "x", "Incremental", "?1").Want(t, http.StatusOK)
	do(client, "POST", c.url+"/keeps?name=no", "x", "Incremental", "?0").Want(t, http.StatusOK)
	r := do(client, "POST", c.url+"/keeps?name=refused", "x", "Incremental", "?1").Want(t, http.StatusServiceUnavailable)
	if got := r.Header.Get("Proxy-Status"); !strings.HasSuffix(got, "; error=incremental_refused") {
		t.Errorf("Proxy-Status is %q", got)
	}
	upstream.WantNever("refused")
}

// A body that fails before the ticket is no request. Bug: it had no outcome in the
// metrics.
func TestBodyFails(t *testing.T) {
	t.Parallel()
	const chunked = "POST /?name=broken HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, test := range []struct {
		name, sent string
		closes     bool
		want       int
	}{
		{"breaks off", head("broken", 10) + "12345", true, 499},
		{"breaks off in the file", head("broken", 300<<10) + strings.Repeat("x", 200<<10), true, 499},
		{"a broken chunk", chunked + "5\r\n12345\r\nno number\r\n", false, http.StatusBadRequest},
		{"a broken chunk in the file", chunked + "30000\r\n" + strings.Repeat("x", 0x30000) + "\r\nno number\r\n", false, http.StatusBadRequest},
		{"turns out too large", chunked + "80000\r\n" + strings.Repeat("x", 0x80000) + "\r\n0\r\n\r\n", false, http.StatusRequestEntityTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{upstream: upstream, global: "metrics", site: `
				request_body {
					max_size 500KB
				}
				` + serialized})
			conn := c.dial()
			_, err := io.WriteString(conn, test.sent)
			check(t, err)
			if test.closes {
				check(t, conn.(*net.TCPConn).CloseWrite())
			}
			if got := answerOf(t, conn); got != test.want {
				t.Errorf("answered %d, want %d", got, test.want)
			}
			c.get("/?name=next").Want(t, http.StatusOK)
			upstream.WantOrder("next")
			c.wantNoTickets()
			c.wantMetric(`requests_total{outcome="gone",queue="serializer_"}`, "1")
		})
	}
}

// Bug: a client that waits for 100 Continue was told to send its body to a full queue.
func TestExpectContinueToFullQueue(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{upstream: upstream, env: map[string]string{"ENGINE": engine}, site: `
			serialize {
				path {$DIR}
				queue_length 1
				engine {$ENGINE}
			}
			reverse_proxy {$UPSTREAM}`})
		holder := c.holder(t)
		waiter := c.getting("/?name=waiter")
		wait.Until(t, "one waits", func() bool { return strings.Contains(c.Ask("/serialize/queues"), `"waiting":1`) })
		// Nor is the whole of a large body waited for.
		for _, request := range []string{expecting("full"), head("full", 1<<20) + strings.Repeat("x", 100<<10)} {
			conn := c.dial()
			_, err := io.WriteString(conn, request)
			check(t, err)
			if got := answerOf(t, conn); got != http.StatusServiceUnavailable {
				t.Errorf("answered %d, want 500", got)
			}
		}
		release(t, upstream, holder)
		(<-waiter).Want(t, http.StatusOK)
		upstream.WantOrder("holder", "waiter")
		// And with room in the queue the answer is 100.
		conn := c.dial()
		_, err := io.WriteString(conn, expecting("room"))
		check(t, err)
		if got := answerOf(t, conn); got != http.StatusContinue {
			t.Errorf("answered %d, want 100", got)
		}
	})
}

// The next handlers see the same body as without a queue.
func TestBodiesBehind(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			buffer 1KiB 4KiB
		}
		handle /echo {
			respond "{http.request.body}"
		}
		handle /limited {
			request_body {
				max_size 3KB
			}
			reverse_proxy {$UPSTREAM}
		}
		handle /buffered {
			reverse_proxy {$UPSTREAM} {
				request_buffers 1MiB
			}
		}
		handle {
			reverse_proxy {$UPSTREAM}
		}`})
	for _, size := range []int{10, 1024, 1025, 2000, 5 << 10} {
		body := strings.Repeat("x", size)
		for _, version := range []string{"1.1", "2"} {
			client := newClient(t, "1.1")
			post := func(path string) testcaddy.Answer {
				if version == "2" {
					return doContext(t.Context(), client, "POST", c.url+path, io.MultiReader(strings.NewReader(body)))
				}
				return do(client, "POST", c.url+path, body)
			}
			if got := post("/echo").Want(t, http.StatusOK).Text; got != body {
				t.Errorf("the placeholder has %d bytes of %d", len(got), size)
			}
			limited := http.StatusOK
			if size > 3000 {
				limited = http.StatusRequestEntityTooLarge
			}
			post(fmt.Sprintf("/limited?name=limited%d,%s", size, version)).Want(t, limited)
			name := fmt.Sprintf("buffered%d,%s", size, version)
			post("/buffered?name="+name).Want(t, http.StatusOK)
			if v := upstream.Visit(name); len(v.Body) != size {
				t.Errorf("the upstream got %d bytes of %d", len(v.Body), size)
			}
		}
	}
}

// Trailers come with the end of the body, wherever that was read.
func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 2000, 5 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			trailers := make(chan http.Header, 1)
			upstream := testcaddy.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				trailers <- r.Trailer
			}))
			c := start(t, setup{env: map[string]string{"UPSTREAM": upstream}, site: `
				serialize {
					path {$DIR}
					buffer 1KiB 4KiB
				}
				reverse_proxy {$UPSTREAM}`})
			req, err := http.NewRequestWithContext(t.Context(), "POST", c.url, io.MultiReader(strings.NewReader(strings.Repeat("x", size))))
			check(t, err)
			req.Trailer = http.Header{"X-Sum": {"17"}}
			resp, err := newClient(t, "1.1").Do(req)
			check(t, err)
			check(t, resp.Body.Close())
			if got := (<-trailers).Get("X-Sum"); got != "17" {
				t.Errorf("the trailer is %q", got)
			}
		})
	}
}

// The recipe for uploads during which client and upstream take turns to send: a separate
// queue that reads nothing in advance.
func TestDuplex(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		@duplex header Content-Type application/x-ndjson
		serialize @duplex {
			path {$DIR}
			buffer off
		}
		serialize {
			path {$DIR}
		}
		reverse_proxy {$UPSTREAM}`})
	for _, test := range []struct {
		contentType string
		passes      bool
	}{
		{"application/x-ndjson", true},
		{"application/grpc", false}, // no head of a client's choice takes a ticket before the body is here
		{"text/plain", false},
	} {
		conn := c.dial()
		name := strings.ReplaceAll(test.contentType, "+", "-")
		_, err := io.WriteString(conn, strings.Replace(head(name, 10), "\r\n\r\n", "\r\nContent-Type: "+test.contentType+"\r\n\r\n", 1)+"12345")
		check(t, err)
		if test.passes {
			upstream.AwaitEntry(name)
		} else {
			time.Sleep(100 * time.Millisecond)
			upstream.WantNever(name)
		}
		_, err = io.WriteString(conn, "67890")
		check(t, err)
		if got := answerOf(t, conn); got != http.StatusOK || len(upstream.Visit(name).Body) != 10 {
			t.Errorf("%s: answered %d, the upstream got %d bytes", test.contentType, got, len(upstream.Visit(name).Body))
		}
	}
}

// head is the head of a POST with a body of a length.
func head(name string, length int) string {
	return fmt.Sprintf("POST /?name=%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n", name, length)
}

func expecting(name string) string {
	return strings.Replace(head(name, 10), "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1)
}

// answerOf reads the head of an answer and returns its status.
func answerOf(t testing.TB, conn io.Reader) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(t, err)
	check(t, resp.Body.Close())
	return resp.StatusCode
}

// dial connects to the site. Both ends are closed with the test.
func (c *caddy) dial() net.Conn {
	c.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	check(c.t, err)
	check(c.t, conn.SetDeadline(time.Now().Add(wait.Patience)))
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}
