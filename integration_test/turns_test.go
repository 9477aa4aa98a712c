//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// wantTurns sends two requests, and fails the test unless they are in one queue. Then the
// second reaches the upstream only when the first has left it.
func (c *caddy) wantTurns(first, second string) {
	c.t.Helper()
	inside := c.getting(first + "?name=first&gate")
	c.AwaitEntry("first")
	waiting := c.getting(second + "?name=second")
	c.awaitTickets(2)
	c.WantNever("second")
	c.Open("first")
	c.wantServed(inside, waiting)
	c.WantAlone()
}

// The methods of skip_methods pass. The memory engine does not touch the directory.
func TestSkipMethods(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		c := startQueue(t, "skip_methods get,Head OPTIONS\nengine "+engine)
		holder := c.send("POST", "name=holder&gate")
		c.AwaitEntry("holder")
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			c.wantServed(c.send(method, "name="+method))
		}
		answers := []<-chan testcaddy.Answer{holder}
		for i, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			answers = append(answers, c.send(method, "name="+method))
			c.awaitQueue("serializer_", 1, i+1)
			c.WantNever(method)
		}
		if names := fileNames(t, c.dir); engine == "memory" && len(names) > 0 {
			t.Errorf("the engine made files: %v", names)
		}
		c.Open("holder")
		c.wantServed(answers...)
		c.WantOrder("holder", "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")
	})
}

// Of many saves in a row that come to two processes, the first and the last reach the upstream. The
// others are refused as soon as the next one has come.
func TestLatestWins(t *testing.T) {
	t.Parallel()
	one := start(t, setup{global: "metrics", site: behindQueue("prefix save_\nqueue_length 1\nwhen_full drop_oldest\nerror_code 409") +
		"\nhandle_errors 409 {\nrespond {http.serialize.reason}\n}"})
	at := []*caddy{one, one.another()}
	first, waiting := one.holder(t), one.waiter("save0", 2)
	for i := 1; i < 20; i++ {
		next := at[i%2].getting(fmt.Sprint("/?name=save", i))
		if r := (<-waiting).Want(t, http.StatusConflict); r.Text != "superseded" {
			t.Fatalf("save %d was refused because of %q", i-1, r.Text)
		}
		waiting = next
	}
	one.WantNever("save19")
	one.release(first)
	one.wantServed(waiting)
	one.WantOrder("holder", "save19")
	one.awaitTickets(0)
	one.wantMetric(`requests_total{outcome="superseded",queue="save_"}`, "10")
	one.wantMetric(`requests_total{outcome="queue_full",queue="save_"}`, "0")
}

// An unknown placeholder is replaced by an empty text, and the request is served.
func TestUnknownPlaceholderInPrefix(t *testing.T) {
	t.Parallel()
	c := startQueue(t, "prefix x_{http.request.header.No-Such}{no.such.placeholder}_")
	c.holder(t)
	if files := lockFiles(t, c.dir); len(files) != 1 || !strings.HasPrefix(files[0], "x__0000") {
		t.Errorf("lock files %q, want one of x__", files)
	}
	c.awaitEntry("the log warns of placeholders with nothing in between", func(e entry) bool {
		return e["level"] == "warn" && e["placeholders"] == "{http.request.header.No-Such}{no.such.placeholder}"
	})
}

// Bug: session cookies and other credentials stood in the names of queues: in files, lists
// and the log beside Caddy's REDACTED, and in traces and metrics.
func TestCredentialsAppearNowhere(t *testing.T) {
	t.Parallel()
	const cookie, password = "let-me-in-4711", "Bearer another-secret-4712"
	const name = "s_9189cd69629a34ea_2cdcfe09804dca6d_" // printf %s "$value" | sha256sum | cut -c1-16
	header := []string{"Cookie", "session=" + cookie, "Authorization", password}
	eachEngine(t, func(t *testing.T, engine string) {
		c := start(t, setup{
			global: "debug\nmetrics", env: map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "50"},
			site: "unique_ids\nlog\ntracing\nserialize_status /queues\n" + strings.Replace(behindQueue(
				"prefix s_{cookie.session}_{header.Authorization}_\nqueue_length 1\nengine "+engine), "X-Token ", "X-Queue {http.serialize.queue}\nheader_up X-Token ", 1),
		})
		holder := c.getting("/?name=holder&gate", header...)
		c.awaitQueue(name, 1, 0)
		waiter := c.getting("/?name=waiter", header...)
		c.awaitQueue(name, 1, 1)
		c.get("/", header...).Want(t, http.StatusServiceUnavailable)
		c.pause(name, "1h")
		c.resume(name)
		seen := []string{
			c.Ask("/serialize/queues"), c.Ask("/metrics"), c.get("/queues").Want(t, http.StatusOK).Text,
			strings.Join(fileNames(t, c.dir), "\n"),
		}
		c.release(holder)
		c.wantServed(waiter)
		seen = append(seen, c.Hit("holder").Header.Get("X-Queue"))
		c.awaitEntries("handled request", 4)
		wait.Until(t, "all spans are exported", func() bool { return strings.Count(c.Log.String(), `"Name":"serialize.wait"`) >= 2 })
		seen = append(seen, c.Log.String())
		for i, text := range seen {
			if strings.Contains(text, cookie) || strings.Contains(text, "another-secret") {
				t.Errorf("a credential is in text %d:\n%s", i, text)
			}
			if metrics, files := i == 1, i == 3; !metrics && !(files && engine == "memory") && !strings.Contains(text, name) {
				t.Errorf("text %d does not have the queue's name:\n%s", i, text)
			}
		}
		c.order("s_"+cookie+"__", "pause").Want(t, http.StatusNotFound)
	})
}
