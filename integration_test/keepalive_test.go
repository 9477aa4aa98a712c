//go:build unix

package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// eventUpstream answers as the path says, and with the Accept-Encoding that it has got.
func eventUpstream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Upstream", "seen")
	w.Header().Set(http.TrailerPrefix+"X-Late", "late")
	switch r.URL.Path {
	case "/500":
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusInternalServerError)
	case "/json":
		w.Header().Set("Content-Type", "application/json")
	case "/large":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
	case "/abort":
		panic(http.ErrAbortHandler)
	case "/half":
		_, _ = fmt.Fprint(w, "data: hal")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "/slow":
		<-r.Context().Done()
	}
	_, _ = fmt.Fprintf(w, "data: encoding %q\n\n", r.Header.Get("Accept-Encoding"))
	_ = http.NewResponseController(w).Flush()
	_, _ = fmt.Fprint(w, "data: ", strings.Repeat("x", 1000), "\n\n")
}

// keepAlive starts a site with a keepalive of 1s, and with options.
func keepAlive(t *testing.T, options string, s setup) *caddy {
	t.Helper()
	s.env = map[string]string{"EVENTS": testcaddy.Serve(t, http.HandlerFunc(eventUpstream))}
	s.site = fmt.Sprintf(`log
encode {
	gzip
	minimum_length 1
}
serialize {
	path {$DIR}
	prefix {query.q}_
	keepalive 1s
	%s
}
handle /inner/* {
	serialize {
		path {$DIR}
		prefix inner_{query.q}_
		queue_length 1
		when_full drop_oldest
		keepalive 1s
	}
	uri strip_prefix /inner
	reverse_proxy {$EVENTS}
}
handle /hold {
	reverse_proxy {$UPSTREAM}
}
handle /down {
	reverse_proxy 127.0.0.1:1
}
handle {
	encode gzip
	reverse_proxy {$EVENTS} {
		transport http {
			compression off
		}
	}
}
handle_errors {
	respond "an error route"
}`, options)
	return start(t, s)
}

// hold keeps a queue, until the returned function is called.
func (c *caddy) hold(t *testing.T, queue string) (leave func()) {
	t.Helper()
	answer := c.getting("/hold?gate&q=" + queue + "&name=" + queue)
	wait.Until(t, "the queue is held", func() bool { return c.Hit(queue) != nil })
	return func() { c.Open(queue); (<-answer).Want(t, http.StatusOK) }
}

// queueOf is the name of a queue for a test.
func queueOf(t *testing.T) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("/.,#_ ", c) {
			return -1
		}
		return c
	}, t.Name())
}

// events is an event stream that a client reads.
type events struct {
	*http.Response
	t     *testing.T
	lines *bufio.Reader
}

// stream opens an event stream. header is names and values in turn.
func (c *caddy) stream(t *testing.T, client *http.Client, path string, header ...string) *events {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, http.NoBody)
	check(t, err)
	testcaddy.SetHeader(r, append([]string{"Accept", "text/event-stream;q=0.9"}, header...))
	resp, err := client.Do(r)
	check(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &events{resp, t, bufio.NewReader(resp.Body)}
}

// next is the next block of lines, without the empty line after it. The error is for its end.
func (e *events) next() (block string, err error) {
	for {
		line, err := e.lines.ReadString('\n')
		if line == "\n" || err != nil {
			return block + strings.TrimSuffix(line, "\n"), err
		}
		block += line
	}
}

// want fails the test unless the next block is the text.
func (e *events) want(text string) {
	e.t.Helper()
	if block, err := e.next(); strings.TrimSuffix(block, "\n") != text || err != nil {
		e.t.Fatalf("the stream has %q, %v; expected %q", block, err, text)
	}
}

// wantHead fails the test unless the head is that of a stream with comments.
func (e *events) wantHead() {
	e.t.Helper()
	h := e.Header
	if e.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store, no-transform" ||
		h.Get("X-Accel-Buffering") != "no" || h.Get("Content-Encoding") != "" || h.Get("X-Upstream") != "" {
		e.t.Errorf("the head is %s, %v", e.Status, h)
	}
}

// wantError fails the test unless the last event is that of a code, and comments are all before. Bug:
// its status was that of the answer, and not 503.
func (e *events) wantError(code, retry string) {
	e.t.Helper()
	block, err := e.next()
	for strings.HasPrefix(block, ": waiting") {
		block, err = e.next()
	}
	found := regexp.MustCompile(`^event: error\nretry: (\d+)\ndata: (.*)\n$`).FindStringSubmatch(block)
	if found == nil || err != nil {
		e.t.Fatalf("the stream has %q, %v", block, err)
	}
	var data struct {
		Type  string
		Error struct {
			Message, Type, Code string
			Status              int
		}
	}
	check(e.t, json.Unmarshal([]byte(found[2]), &data))
	if data.Type != "error" || data.Error.Type != "overloaded_error" || data.Error.Message == "" ||
		data.Error.Code != code || data.Error.Status != 503 || retry != "" && found[1] != retry {
		e.t.Errorf("the event is %s, to be tried again after %s ms; expected code %s, status 503", found[2], found[1], code)
	}
	if rest, err := e.next(); rest != "" || err != io.EOF {
		e.t.Errorf("after the event: %q, %v", rest, err)
	}
}

const notEncoded = `data: encoding ""`

// Clients that wait for an event stream get comments, and then the upstream's stream as it is.
// It is not encoded, whatever stands in front of the queue or behind it. A client that need not
// wait gets the upstream's own answer. Timeouts of the server do not count.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	other := keepAlive(t, "", setup{}) // whose server has no timeouts
	for i, timeouts := range []string{"", "timeouts {\nwrite 2s\n}", "timeouts {\nwrite 2s\nwrite_idle 1m\n}"} {
		c := keepAlive(t, "", setup{tls: true, dir: other.dir, servers: timeouts})
		allVersions(t, func(t *testing.T, client *http.Client) {
			queue := fmt.Sprint(queueOf(t), i)
			e := other.stream(t, newClient(t, "1.1"), "/?q="+queue, "Accept-Encoding", "gzip")
			if e.Header.Get("X-Upstream") == "" || e.Header.Get("Content-Encoding") != "gzip" || e.Header.Get("Cache-Control") != "" {
				t.Errorf("without a wait, the head is %v", e.Header)
			}
			leave := other.hold(t, queue)
			e = c.stream(t, client, "/?q="+queue, "Accept-Encoding", "gzip")
			e.wantHead()
			for range 3 {
				e.want(": waiting, place 1")
			}
			leave()
			for block, err := e.next(); ; block, err = e.next() {
				if check(t, err); block == notEncoded+"\n" {
					break
				} else if block != ": waiting, place 1\n" {
					t.Fatalf("the stream has %q", block)
				}
			}
			e.want("data: " + strings.Repeat("x", 1000))
			if rest, err := e.next(); rest != "" || err != io.EOF || len(e.Trailer) > 0 {
				t.Errorf("then the stream has %q, %v and trailers %v", rest, err, e.Trailer)
			}
		})
	}
}

// A failure, or a response that is no event stream, becomes one event. Error routes are not asked. The access log has
// 200, so the log says what happened.
func TestKeepAliveFails(t *testing.T) {
	t.Parallel()
	c := keepAlive(t, "timeout 8s\nqueue_length 1\nwhen_full drop_oldest", setup{})
	enter := func(_ string, leave func()) { leave() }
	for _, test := range []struct {
		path   string
		then   func(queue string, leave func()) // after the first comment
		code   string
		status int
		retry  string
	}{
		{"/timeout", func(string, func()) {}, "timeout", 503, ""},
		{"/evicted", func(queue string, _ func()) { c.evictLast(queue) }, "evicted", 503, ""},
		{"/superseded", func(queue string, _ func()) { c.getting("/hold?q=" + queue) }, "superseded", 503, ""},
		{"/500", enter, "500", 500, "7000"},
		{"/json", enter, "200", 502, "3000"},
		{"/large", enter, "200", 502, "3000"},
		{"/gzip", enter, "200", 502, "3000"},
		{"/abort", enter, "502", 502, "3000"},
		{"/down", enter, "502", 502, "3000"},
		{"/slow", func(queue string, leave func()) { leave(); c.awaitQueue(queue+"_", 1, 0); c.evictLast(queue) }, "504", 504, "3000"},
	} {
		t.Run(test.path[1:], func(t *testing.T) {
			t.Parallel()
			queue := test.path[1:]
			leave := c.hold(t, queue)
			e := c.stream(t, newClient(t, "1.1"), test.path+"?q="+queue)
			e.wantHead()
			e.want(": waiting, place 1")
			test.then(queue, leave)
			e.wantError(test.code, test.retry)
			wait.Until(t, "failure and access are logged", func() bool {
				return len(c.Log.All(func(e entry) bool {
					request, _ := e["request"].(map[string]any)
					return e["queue"] == queue+"_" && e["status"] == float64(test.status) && e["level"] == "error" ||
						e["status"] == 200.0 && request["uri"] == test.path+"?q="+queue
				})) == 2
			})
		})
	}
}

// evictLast evicts the last ticket of a queue.
func (c *caddy) evictLast(queue string) {
	tickets := c.queue(queue + "_").Tickets
	c.API("DELETE", c.path(queue+"_")+"/"+tickets[len(tickets)-1].Token, "").Want(c.t, http.StatusOK)
}

// A stream of the upstream that breaks off breaks off for the client: it must not take it for whole.
// A client that leaves, also behind a proxy that gives up, leaves the queue.
func TestKeepAliveEndsEarly(t *testing.T) {
	t.Parallel()
	c := keepAlive(t, "", setup{tls: true})
	allVersions(t, func(t *testing.T, client *http.Client) {
		queue := queueOf(t)
		leave := c.hold(t, queue)
		gone := c.stream(t, client, "/?q="+queue)
		gone.want(": waiting, place 1")
		check(t, gone.Body.Close())
		c.awaitQueue(queue+"_", 1, 0)
		e := c.stream(t, client, "/half?q="+queue)
		e.want(": waiting, place 1")
		leave()
		block, err := e.next()
		for strings.HasPrefix(block, ": waiting") {
			block, err = e.next()
		}
		if !strings.HasPrefix("data: hal", block) || err == nil || err == io.EOF { // HTTP/3 may drop what was sent
			t.Errorf("the stream ends with %q, %v", block, err)
		}
	})
}

// In an inner queue, comments continue, and its refusal is an event.
func TestKeepAliveInNestedQueues(t *testing.T) {
	t.Parallel()
	c := keepAlive(t, "concurrency 2", setup{})
	leave := c.hold(t, "a")
	inner := c.getting("/inner/slow?q=a")
	c.awaitQueue("inner_a_", 1, 0)
	e := c.stream(t, newClient(t, "1.1"), "/inner/?q=a", "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c")
	e.wantHead()
	e.want(": waiting, place 1")
	leave()
	c.awaitQueue("inner_a_", 1, 1)
	for range 3 {
		e.want(": waiting, place 1")
	}
	c.evictLast("inner_a")
	e.wantError("evicted", "")
	if len(inner) > 0 {
		t.Error("nobody was inside the inner queue")
	}
}
