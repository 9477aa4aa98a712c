//go:build unix

package integration_test

import (
	"bytes"
	"context"
	"fmt"
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
// finishes undisturbed.
func TestClientHangsUpInside(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "&stream"} {
		bothVersions(t, func(t *testing.T, client *http.Client) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{tls: true, site: serialized, upstream: upstream})
			hangUpAfterTenth(t, client, c.url+"/?name=first&work=1s"+query, func() bool { return upstream.Visit("first") != nil })
			c.get("/?name=second").Want(t, http.StatusOK)
			first := upstream.AwaitExit("first")
			if first.Cancelled || first.Left.Sub(first.Entered) < time.Second {
				t.Errorf("the request behind was cancelled after %v", first.Left.Sub(first.Entered))
			}
			upstream.WantOrder("first", "second")
			upstream.WantAlone()
		})
	}
}

// With on_disconnect cancel, the request inside is cancelled with its client.
func TestClientHangsUpInsideCancel(t *testing.T) {
	t.Parallel()
	bothVersions(t, func(t *testing.T, client *http.Client) {
		t.Parallel()
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{tls: true, upstream: upstream, site: `
			serialize {
				path {$DIR}
				on_disconnect cancel
			}
			reverse_proxy {$UPSTREAM}`})
		hangUpAfterTenth(t, client, c.url+"/?name=first&gate", func() bool { return upstream.Visit("first") != nil })
		c.get("/?name=second").Want(t, http.StatusOK)
		if !upstream.AwaitExit("first").Cancelled {
			t.Error("the request behind was not cancelled")
		}
		c.wantNoTickets()
	})
}

// A client that hangs up while it waits leaves the queue within a second.
func TestClientHangsUpWaiting(t *testing.T) {
	t.Parallel()
	const limit = 16 << 10
	requests := []struct {
		name   string
		method string
		body   []byte
	}{
		{"GET", "GET", nil},
		{"POST", "POST", []byte("small")},
		{"POST as large as the buffer", "POST", bytes.Repeat([]byte("x"), limit)},
	}
	for _, chunked := range []bool{false, true} {
		for _, request := range requests {
			if chunked && (len(request.body) == 0 || len(request.body) == limit) {
				continue
			}
			t.Run(fmt.Sprintf("%s, chunked %t", request.name, chunked), func(t *testing.T) {
				t.Parallel()
				bothVersions(t, func(t *testing.T, client *http.Client) {
					testHangUpWaiting(t, client, request.method, func() io.Reader {
						if chunked {
							return io.MultiReader(bytes.NewReader(request.body)) // hides the length
						}
						return bytes.NewReader(request.body)
					})
				})
			})
		}
	}
	// Over HTTP/2, the body does not matter.
	t.Run("POST larger than the buffer, HTTP/2", func(t *testing.T) {
		t.Parallel()
		testHangUpWaiting(t, newClient(t, "2"), "POST", func() io.Reader {
			return bytes.NewReader(bytes.Repeat([]byte("x"), 4*limit))
		})
	})
}

func testHangUpWaiting(t *testing.T, client *http.Client, method string, body func() io.Reader) {
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{tls: true, upstream: upstream, site: `
		serialize {
			path {$DIR}
			buffer 16KiB
		}
		reverse_proxy {$UPSTREAM}`})
	holder := c.holder(t)

	// A busy machine may need more than the second that is promised; not always.
	took := wait.Patience
	for range 10 {
		ctx, hangUp := context.WithCancel(t.Context())
		waiting := inBackground(func() testcaddy.Answer {
			return doContext(ctx, client, method, c.url+"/?name=waiting", body())
		})
		c.awaitTickets(2)
		hangUp()
		gone := time.Now()
		<-waiting
		c.awaitTickets(1)
		if took = time.Since(gone); took <= time.Second {
			break
		}
	}
	if took > time.Second {
		t.Errorf("the ticket was there for %v", took)
	}
	release(t, upstream, holder)
	c.get("/?name=last").Want(t, http.StatusOK)
	upstream.WantOrder("holder", "last")
	c.wantNoTickets()
}

// A connected client does not count as gone, even if it sends its next requests in
// advance.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{site: serialized, upstream: upstream})
	holder := c.holder(t)
	conn := c.dial()
	_, err := io.WriteString(conn, strings.Repeat("GET /?name=waiting HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 2)+
		"GET /?name=waiting HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
	check(t, err)
	c.awaitTickets(2)
	time.Sleep(time.Second)
	release(t, upstream, holder)
	answers, err := io.ReadAll(conn)
	check(t, err)
	if got := strings.Count(string(answers), "200 OK"); got != 3 {
		t.Errorf("%d requests were served, want 3:\n%s", got, answers)
	}
}
