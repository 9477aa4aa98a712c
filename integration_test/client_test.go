//go:build unix

package integration_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The certificates are of authorities that Caddy makes for each process.
var insecure = &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}

// newClient makes a client for one version of HTTP: "1.1", "2" or "3".
func newClient(t testing.TB, version string) *http.Client {
	if version == "3" {
		transport := &http3.Transport{TLSClientConfig: insecure.Clone()}
		t.Cleanup(func() { _ = transport.Close() })
		return &http.Client{Transport: transport, Timeout: 2 * wait.Patience}
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 256,
		TLSClientConfig:     insecure.Clone(),
		Protocols:           new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(version == "1.1")
	transport.Protocols.SetHTTP2(version == "2")
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       2 * wait.Patience,
		CheckRedirect: testcaddy.StayHere,
	}
}

// bothVersions runs a test over HTTP/1.1 and over HTTP/2.
func bothVersions(t *testing.T, test func(t *testing.T, client *http.Client)) {
	for _, version := range []string{"1.1", "2"} {
		t.Run("HTTP/"+version, func(t *testing.T) { test(t, newClient(t, version)) })
	}
}

// allVersions runs a test over HTTP/1.1, HTTP/2 and HTTP/3, side by side.
func allVersions(t *testing.T, test func(t *testing.T, client *http.Client)) {
	for _, version := range []string{"1.1", "2", "3"} {
		t.Run("HTTP/"+version, func(t *testing.T) {
			t.Parallel()
			test(t, newClient(t, version))
		})
	}
}

// do makes a request. header is names and values in turn.
func do(client *http.Client, method, url, body string, header ...string) testcaddy.Answer {
	return doContext(context.Background(), client, method, url, strings.NewReader(body), header...)
}

func doContext(ctx context.Context, client *http.Client, method, url string, body io.Reader, header ...string) testcaddy.Answer {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return testcaddy.Answer{Response: new(http.Response), Err: err}
	}
	testcaddy.SetHeader(req, header)
	return testcaddy.Do(client, req)
}

// get makes a request of its own connection and returns the answer.
func (c *caddy) get(path string, header ...string) testcaddy.Answer {
	c.t.Helper()
	return do(newClient(c.t, "1.1"), "GET", c.url+path, "", header...)
}

// getting makes a request in the background.
func (c *caddy) getting(path string, header ...string) <-chan testcaddy.Answer {
	return inBackground(func() testcaddy.Answer { return c.get(path, header...) })
}

// holder brings a request inside, which stays until the gate of the name holder is
// opened. If timeouts are short, a busy machine may not even get the only ticket made in
// time; then it tries again.
func (c *caddy) holder(t testing.TB) <-chan testcaddy.Answer {
	t.Helper()
	for end := time.Now().Add(wait.Patience); time.Now().Before(end); {
		answer := c.getting("/?name=holder&gate")
		wait.Until(t, "the holder is inside, or refused", func() bool { return c.Hit("holder") != nil || len(answer) > 0 })
		if c.Hit("holder") != nil {
			return answer
		}
	}
	t.Fatal("the holder never gets inside")
	return nil
}

// waiter sends a request, and returns once the lock directory has so many tickets.
func (c *caddy) waiter(name string, tickets int) <-chan testcaddy.Answer {
	c.t.Helper()
	answer := c.getting("/?name=" + name)
	c.awaitTickets(tickets)
	return answer
}

// wantServed waits for answers, all of which must be good.
func (c *caddy) wantServed(answers ...<-chan testcaddy.Answer) {
	c.t.Helper()
	for _, answer := range answers {
		(<-answer).Want(c.t, http.StatusOK)
	}
}

// release lets the holder leave, which must then be served.
func (c *caddy) release(holder <-chan testcaddy.Answer) {
	c.t.Helper()
	c.Open("holder")
	c.wantServed(holder)
}

// wantNoAnswer fails the test if there is an answer within a time.
func wantNoAnswer(t *testing.T, answer <-chan testcaddy.Answer, within time.Duration) {
	t.Helper()
	select {
	case a := <-answer:
		t.Fatalf("answered while another was inside: %v", a)
	case <-time.After(within):
	}
}

func inBackground(request func() testcaddy.Answer) <-chan testcaddy.Answer {
	answer := make(chan testcaddy.Answer, 1)
	go func() { answer <- request() }()
	return answer
}
