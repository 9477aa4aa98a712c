//go:build unix

package integration_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// eventUpstream sends events, the first with the Accept-Encoding that it has got.
func eventUpstream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Upstream", "seen")
	w.Header().Set(http.TrailerPrefix+"X-Late", "late")
	_, _ = fmt.Fprintf(w, "data: encoding %q\n\n", r.Header.Get("Accept-Encoding"))
	_ = http.NewResponseController(w).Flush()
	if r.URL.Path == "/half" {
		panic(http.ErrAbortHandler)
	}
	_, _ = fmt.Fprint(w, "data: ", strings.Repeat("x", 1000), "\n\n")
}

const keepAliveSite = `encode {
	gzip
	minimum_length 1
}
serialize {
	path {$DIR}
	prefix {query.q}_
	keepalive 1s
}
handle {
	encode gzip
	reverse_proxy {$EVENTS} {
		transport http {
			compression off
		}
	}
}`

// stream opens an event stream, and reads its first comments.
func (c *caddy) stream(t *testing.T, client *http.Client, path string, place, comments int) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, http.NoBody)
	check(t, err)
	testcaddy.SetHeader(r, []string{"Accept", "text/event-stream;q=0.9", "Accept-Encoding", "gzip"})
	answer, err := client.Do(r)
	check(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	want := strings.Repeat(fmt.Sprintf(": waiting, place %d\n\n", place), comments)
	got := make([]byte, len(want))
	if _, err = io.ReadFull(answer.Body, got); err != nil || string(got) != want {
		t.Fatalf("%s begins with %q, %v; expected %q", path, got, err, want)
	}
	return answer
}

// Clients that wait for an event stream get comments, and then the upstream's stream as it is. It is not
// encoded, whatever stands in front of the queue or behind it. A stream that breaks off breaks off for the
// client: it must not take it for whole. A client that need not wait gets the upstream's own answer, and
// one that leaves, also behind a proxy that gives up, leaves the queue. Timeouts of the server do not count.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	holders := startQueue(t, "prefix {query.q}_")
	env := map[string]string{"EVENTS": testcaddy.Serve(t, http.HandlerFunc(eventUpstream))}
	for name, timeouts := range map[string]string{"none": "", "write": "timeouts {\nwrite 2s\nwrite_idle 1m\n}"} {
		c := start(t, setup{tls: true, dir: holders.dir, servers: timeouts, site: keepAliveSite, env: env})
		for _, version := range []string{"1.1", "2", "3"} {
			t.Run(name+version, func(t *testing.T) {
				t.Parallel()
				c.keepsAlive(t, newClient(t, version), holders, name+version)
			})
		}
	}
}

// keepsAlive waits in a queue for which another Caddy has a holder.
func (c *caddy) keepsAlive(t *testing.T, client *http.Client, holders *caddy, queue string) {
	t.Helper()
	query := "?q=" + queue + "&name=" + queue
	own := c.stream(t, client, "/"+query, 0, 0)
	if h := own.Header; h.Get("X-Upstream") == "" || h.Get("Content-Encoding") != "gzip" || h.Get("Cache-Control") != "" {
		t.Errorf("without a wait, the head is %v", h)
	}
	check(t, own.Body.Close())
	holder := holders.getting("/" + query + "&gate")
	holders.awaitHit(queue)
	check(t, c.stream(t, client, "/"+query, 1, 1).Body.Close())
	c.awaitQueue(queue+"_", 1, 0)

	whole := c.stream(t, client, "/"+query, 1, 3)
	half := c.stream(t, client, "/half"+query, 2, 1)
	holders.Open(queue)
	holders.wantServed(holder)
	for _, test := range []struct {
		*http.Response
		follows string
	}{
		{whole, `data: encoding ""\n\ndata: x{1000}\n\n`},
		{half, `(data: encoding ""\n\n)?`}, // HTTP/3 may drop what was sent
	} {
		text, err := io.ReadAll(test.Body)
		if !regexp.MustCompile(`^(: waiting, place \d\n\n)*`+test.follows+"$").Match(text) || (err != nil) != (test.Response == half) {
			t.Errorf("the stream has %q, %v; expected %s", text, err, test.follows)
		}
		if h := test.Header; h.Get("Content-Type") != "text/event-stream" || h.Get("Content-Encoding")+h.Get("X-Upstream") != "" || len(test.Trailer) > 0 {
			t.Errorf("the head is %s, %v, and the trailers are %v", test.Status, h, test.Trailer)
		}
	}
}
