//go:build unix

package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

const (
	plainQueue    = "serialize {\npath {$DIR}\n}\n"
	proxyUpstream = "reverse_proxy {$UPSTREAM}\n"
)

// errorRouteSites lead a request to an upstream by the error routes of a queue.
var errorRouteSites = []struct {
	name string
	site string
	more string
	json string // in place of both
}{
	{name: "without the queue", site: "route {\n" + plainQueue + "error 418\n}\nhandle_errors {\n" + proxyUpstream + "}"},
	{name: "through the queue", site: "route {\n" + plainQueue + "error 418\n}\nhandle_errors {\n" + plainQueue + proxyUpstream + "}"},
	{
		name: "nested queues",
		site: "route {\n" + plainQueue + "route {\nserialize {\npath {$DIR}\nprefix inner_\n}\nerror 418\n}\n}\nhandle_errors {\n" + proxyUpstream + "}",
	},
	{
		name: "queue in a named route",
		more: "&(queue) {\n" + plainQueue + "error 418\n}",
		site: "invoke queue\nhandle_errors {\n" + proxyUpstream + "}",
	},
	{
		name: "another site",
		more: "{$SITE}/other* {\nrespond other\nhandle_errors {\nrespond other\n}\n}",
		site: "route {\n" + plainQueue + "error 418\n}\nhandle_errors {\n" + proxyUpstream + "}",
	},
	{
		name: "of a subroute",
		json: `{"handler": "subroute",
			"routes": [{"handle": [{"handler": "serialize", "path": "DIR"}, {"handler": "error", "status_code": 418}]}],
			"errors": {"routes": [{"handle": [PROXY]}]}}`,
	},
	{
		name: "of a server, after those of a subroute have failed",
		json: `{"handler": "subroute",
			"routes": [{"handle": [{"handler": "serialize", "path": "DIR"}, {"handler": "error", "status_code": 418}]}],
			"errors": {"routes": [{"handle": [{"handler": "error", "status_code": 419}]}]}}`,
	},
}

// startErrorRoutes starts a Caddy with one of the sites.
func startErrorRoutes(t *testing.T, upstream *testcaddy.Upstream, site, more, json string) *caddy {
	t.Helper()
	c := start(t, setup{tls: true, upstream: upstream, site: site, more: more})
	if json == "" {
		return c
	}
	c.loadErrorRoutes(upstream, json, `{}`)
	return c
}

// loadErrorRoutes loads a configuration of one handler, of named routes, and an
// error route that is a proxy and no subroute.
func (c *caddy) loadErrorRoutes(upstream *testcaddy.Upstream, handler, named string) {
	c.t.Helper()
	config := `{"admin": {"listen": "ADMIN"}, "apps": {
		"tls": {"certificates": {"load_files": [{"certificate": "CERT", "key": "KEY"}]}},
		"http": {"servers": {"srv0": {"listen": [":PORT"], "automatic_https": {"disable": true}, "tls_connection_policies": [{}],
			"routes": [{"handle": [` + handler + `]}], "named_routes": ` + named + `, "errors": {"routes": [{"handle": [PROXY]}]}}}}}}`
	config = strings.NewReplacer("ADMIN", c.Admin, "CERT", certificate.cert, "KEY", certificate.key, "PORT", fmt.Sprint(c.port), "DIR", c.dir,
		"PROXY", `{"handler": "reverse_proxy", "upstreams": [{"dial": "`+upstream.Addr+`"}]}`).Replace(config)
	check(c.t, c.Load("application/json", config))
	c.awaitOneListener()
}

// Bug: a client that hung up while an error route worked ended the turn, and the next
// request entered beside the error route.
func TestHangUpInErrorRoutes(t *testing.T) {
	t.Parallel()
	for _, test := range errorRouteSites {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			allVersions(t, func(t *testing.T, client *http.Client) {
				upstream := testcaddy.NewUpstream(t)
				c := startErrorRoutes(t, upstream, test.site, test.more, test.json)
				hangUpAfterTenth(t, client, c.url+"/?name=first&gate", func() bool { return upstream.Visit("first") != nil })
				c.wantTurnHeld(upstream, "first")
			})
		})
	}
}

// Bug: a client that had hung up before the error did so, too.
func TestHangUpBeforeErrorRoutes(t *testing.T) {
	t.Parallel()
	allVersions(t, func(t *testing.T, client *http.Client) {
		upstream, failing := testcaddy.NewUpstream(t), testcaddy.NewUpstream(t)
		c := start(t, setup{tls: true, upstream: upstream, env: map[string]string{"FAILING": failing.Addr}, site: plainQueue + `
			reverse_proxy {$FAILING} {
				handle_response {
					error 502
				}
			}
			handle_errors {
				reverse_proxy {$UPSTREAM}
			}`})
		hangUpAfterTenth(t, client, c.url+"/?name=first&gate", func() bool { return failing.Visit("first") != nil })
		failing.Open("first")
		upstream.AwaitEntry("first")
		failing.Open("second")
		c.wantTurnHeld(upstream, "first")
	})
}

// If only named routes have queues, an error route without a subroute cannot be held:
// Caddy has prepared it before. The log says so, and the error route is cancelled when
// the turn is revoked or ends.
func TestErrorRoutesNotHeld(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{tls: true, upstream: upstream})
	c.loadErrorRoutes(upstream, `{"handler": "invoke", "name": "queue"}`,
		`{"queue": {"handle": [{"handler": "serialize", "path": "DIR", "hold_timeout": "2s"}, {"handler": "error", "status_code": 418}]}}`)
	if line := c.awaitEntryOf("error routes of this server end their turn when the client hangs up; " +
		"put a serialize outside of named routes, or the error routes into a subroute"); line.Text("server") != "srv0" {
		t.Errorf("the log says %v", line)
	}
	hangUpAfterTenth(t, newClient(t, "2"), c.url+"/?name=first&gate", func() bool { return upstream.Visit("first") != nil })
	if !upstream.AwaitExit("first").Cancelled {
		t.Error("the error route was not cancelled")
	}
	do(newClient(t, "1.1"), "GET", c.url+"/?name=second&gate", "")
	if !upstream.AwaitExit("second").Cancelled {
		t.Error("hold_timeout did not cancel the error route")
	}
	c.wantNoTickets()
}

// wantTurnHeld makes sure that no other request enters before the gate of the
// holder is opened, and that it may work until then.
func (c *caddy) wantTurnHeld(upstream *testcaddy.Upstream, holder string) {
	c.t.Helper()
	second := c.getting("/?name=second&gate")
	wait.Until(c.t, "two are in the queue", func() bool { return len(lockFiles(c.t, c.dir)) >= 2 })
	time.Sleep(200 * time.Millisecond) // for one that does not wait
	upstream.WantNever("second")
	upstream.Open(holder)
	if upstream.AwaitExit(holder).Cancelled {
		c.t.Error("the error route was cancelled")
	}
	upstream.AwaitEntry("second")
	upstream.Open("second")
	(<-second).Want(c.t, http.StatusOK)
	upstream.WantAlone()
	c.wantNoTickets()
}

// With on_disconnect cancel, an error route is cancelled with its client.
func TestHangUpInErrorRoutesCancel(t *testing.T) {
	t.Parallel()
	allVersions(t, func(t *testing.T, client *http.Client) {
		upstream := testcaddy.NewUpstream(t)
		c := start(t, setup{tls: true, upstream: upstream, site: "route {\nserialize {\npath {$DIR}\non_disconnect cancel\n}\nerror 418\n}\n" +
			"handle_errors {\n" + proxyUpstream + "}"})
		hangUpAfterTenth(t, client, c.url+"/?name=first&gate", func() bool { return upstream.Visit("first") != nil })
		if !upstream.AwaitExit("first").Cancelled {
			t.Error("the error route was not cancelled")
		}
		c.wantNoTickets()
	})
}

// A reload provisions everything again, including the error routes.
func TestErrorRoutesAfterReload(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	s := setup{tls: true, upstream: upstream, site: errorRouteSites[0].site}
	c := start(t, s)
	check(t, c.reload(s))
	hangUpAfterTenth(t, newClient(t, "1.1"), c.url+"/?name=first&gate", func() bool { return upstream.Visit("first") != nil })
	c.wantTurnHeld(upstream, "first")
}

// The turn of a request without error routes ends with it.
func TestNoErrorRoutes(t *testing.T) {
	t.Parallel()
	for name, site := range map[string]string{
		"none":               "route {\n" + plainQueue + "error 418\n}",
		"none that matches":  "route {\n" + plainQueue + "error 418\n}\nhandle_errors 5xx {\nrespond late\n}",
		"in a named route":   "invoke queue",
		"failing themselves": "route {\n" + plainQueue + "error 418\n}\nhandle_errors {\nerror 419\n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, setup{site: site, more: "&(queue) {\n" + plainQueue + "error 418\n}"})
			client := newClient(t, "1.1")
			for range 5 { // on one connection
				do(client, "GET", c.url, "").Want(t, http.StatusTeapot)
			}
			c.wantNoTickets()
		})
	}
}

// Bug: hold_timeout did not limit the error routes.
func TestHoldTimeoutInErrorRoutes(t *testing.T) {
	t.Parallel()
	bounded := strings.NewReplacer("path {$DIR}", "path {$DIR}\nhold_timeout 2s", `"path": "DIR"`, `"path": "DIR", "hold_timeout": "2s"`)
	for _, test := range errorRouteSites {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := startErrorRoutes(t, upstream, bounded.Replace(test.site), bounded.Replace(test.more), bounded.Replace(test.json))
			first := c.getting("/?name=first&gate")
			upstream.AwaitEntry("first")
			second := c.getting("/?name=second")
			left := upstream.AwaitExit("first")
			if held := left.Left.Sub(left.Entered); !left.Cancelled || held > wait.Patience/2 {
				t.Errorf("cancelled %t, after %v", left.Cancelled, held)
			}
			if r := <-first; r.Err != nil || r.StatusCode < 400 {
				t.Errorf("the first request: %v", r)
			}
			(<-second).Want(t, http.StatusOK)
			c.awaitEntryOf("left after its turn was revoked")
			c.wantNoTickets()
		})
	}
}

// answerTime is how long an answer may take after the turn was revoked.
const answerTime = 500 * time.Millisecond

// The error routes of a request whose turn was revoked may answer, but do nothing else.
func TestErrorRoutesAfterHoldTimeout(t *testing.T) {
	t.Parallel()
	const hold = 300 * time.Millisecond
	queue := "serialize {\npath {$DIR}\nhold_timeout " + hold.String() + "\n}\nreverse_proxy {$FIRST}\n"
	for _, test := range []struct{ name, routes, body string }{
		{"answer", "respond \"sorry: {err.status_code}\"", "sorry: 504"},
		{"answer through the queue", "serialize {\npath {$DIR}\n}\nrespond \"sorry: {err.status_code}\"", "sorry: 504"},
		{"upstream", "reverse_proxy {$UPSTREAM}", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			allVersions(t, func(t *testing.T, client *http.Client) {
				first, upstream := testcaddy.NewUpstream(t), testcaddy.NewUpstream(t)
				c := start(t, setup{
					tls: true, upstream: upstream, env: map[string]string{"FIRST": first.Addr},
					site: queue + "handle_errors {\n" + test.routes + "\n}",
				})
				ctx, stop := context.WithTimeout(t.Context(), wait.Patience)
				defer stop()
				for answered := 0; answered < 2; { // on one connection
					began := time.Now()
					r := doContext(ctx, client, "GET", c.url+"/?name=holder&gate", nil)
					// An answer has half a second, which a busy machine may not have.
					if r.Err != nil && ctx.Err() == nil && time.Since(began) > hold+answerTime {
						continue
					}
					if r.Want(t, http.StatusGatewayTimeout).Text != test.body {
						t.Errorf("answered %q, want %q", r.Text, test.body)
					}
					answered++
				}
				wait.Until(t, "the next one is served in time", func() bool { return c.get("/?name=next").StatusCode == http.StatusOK })
				upstream.WantOrder()
				c.wantNoTickets()
			})
		})
	}
}
