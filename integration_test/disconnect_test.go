//go:build unix

package integration_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// hangUpAfterTenth makes a request, and hangs up a tenth of a second after it
// has got where it should.
func hangUpAfterTenth(t *testing.T, client *http.Client, url string, arrived func() bool) {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	answer := inBackground(func() testcaddy.Answer { return doContext(ctx, client, "GET", url, nil) })
	wait.Until(t, "the request has arrived", arrived)
	time.Sleep(100 * time.Millisecond)
	hangUp()
	if r := <-answer; r.Err == nil {
		t.Fatalf("answered before the client hung up: %v", r)
	}
}

// A client that hangs up while its request is inside does not end the turn: the upstream
// finishes undisturbed. With on_disconnect cancel, it is cancelled.
func TestClientHangsUpInside(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ option, query string }{
		{"on_disconnect finish", "work=1s"}, {"on_disconnect finish", "work=1s&stream"}, {"on_disconnect cancel", "gate"},
	} {
		bothVersions(t, func(t *testing.T, client *http.Client) {
			t.Parallel()
			c := start(t, setup{tls: true, site: behindQueue(test.option)})
			hangUpAfterTenth(t, client, c.url+"/?name=first&"+test.query, func() bool { return c.Hit("first") != nil })
			c.get("/?name=second").Want(t, http.StatusOK)
			<-c.AwaitEntry("first").Gone
			first := c.Hit("first")
			finished := !first.Cancelled && first.Left.Sub(first.Entered) >= time.Second
			if finished == (test.query == "gate") {
				t.Errorf("%s: the request behind was cancelled: %t, after %v", test.option, first.Cancelled, first.Left.Sub(first.Entered))
			}
			c.WantOrder("first", "second")
			c.WantAlone()
			c.awaitTickets(0)
		})
	}
}

// A client that hangs up while it waits leaves the queue within a second. Bug: inside another
// queue, it never left.
func TestClientHangsUpWaiting(t *testing.T) {
	t.Parallel()
	const buffer = 16 << 10
	for name, test := range map[string]struct {
		version, method string
		size            int
		chunked         bool
		around          string // another queue, of each request alone
	}{
		"GET":                                 {"1.1", "GET", 0, false, ""},
		"GET, HTTP/2":                         {"2", "GET", 0, false, ""},
		"GET, inside another queue":           {"1.1", "GET", 0, false, "prefix {query.name}_"},
		"browser, inside another queue":       {"1.1", "GET", 0, false, "prefix {query.name}_"}, // bug: it waited on for its page
		"POST":                                {"1.1", "POST", 5, false, ""},
		"POST, chunked":                       {"1.1", "POST", 5, true, ""},
		"POST, chunked, HTTP/2":               {"2", "POST", 5, true, ""},
		"POST, inside another queue":          {"1.1", "POST", 5, false, "prefix {query.name}_\nbuffer off"},
		"POST as large as the buffer":         {"1.1", "POST", buffer, false, ""},
		"POST larger than the buffer, HTTP/2": {"2", "POST", 4 * buffer, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site, tickets := behindQueue("buffer 16KiB\nwaiting_page {\nafter 30s\n}"), 1 // of a request
			var header []string
			if strings.HasPrefix(name, "browser") {
				header = navigation
			}
			if test.around != "" {
				site, tickets = "route {\nserialize {\npath {$DIR}\n"+test.around+"\n}\n"+site+"\n}", 2
			}
			c := start(t, setup{tls: true, site: site})
			holder := c.holder(t)
			// A busy machine may need more than the second that is promised; not always.
			took := wait.Patience
			for range 10 {
				body := io.Reader(bytes.NewReader(make([]byte, test.size)))
				if test.chunked {
					body = io.MultiReader(body) // hides the length
				}
				ctx, hangUp := context.WithCancel(t.Context())
				waiting := inBackground(func() testcaddy.Answer {
					return doContext(ctx, newClient(t, test.version), test.method, c.url+"/?name=waiting", body, header...)
				})
				c.awaitTickets(2 * tickets)
				hangUp()
				gone := time.Now()
				<-waiting
				c.awaitTickets(tickets)
				if took = time.Since(gone); took <= time.Second {
					break
				}
			}
			if took > time.Second {
				t.Errorf("the ticket was there for %v", took)
			}
			c.release(holder)
			c.get("/?name=last").Want(t, http.StatusOK)
			c.WantOrder("holder", "last")
			c.awaitTickets(0)
		})
	}
}

// A connected client does not count as gone, even if it sends its next requests in
// advance.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	c := startQueue(t, "")
	holder := c.holder(t)
	conn := c.dial(strings.Repeat("GET /?name=waiting HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 2) +
		"GET /?name=waiting HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
	c.awaitTickets(2)
	time.Sleep(time.Second)
	c.release(holder)
	answers, err := io.ReadAll(conn)
	check(t, err)
	if got := strings.Count(string(answers), "200 OK"); got != 3 {
		t.Errorf("%d requests were served, want 3:\n%s", got, answers)
	}
}
