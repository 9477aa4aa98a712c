//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Whatever value a placeholder in the prefix has, the lock file stays in the directory,
// and different values are different queues, also if one begins with another.
func TestHostilePrefixes(t *testing.T) {
	t.Parallel()
	values := []string{
		"a_", "a_b_", "a_0", "a_1", "a", "a_0000", "../../x", "/etc/passwd", `..\..\x`,
		strings.Repeat("x", 3000), strings.Repeat("x", 2999) + "y", "\xff\xfe\x80", "\xff\xfe\x81", "", "a\x00b", "a\nb", "a00007",
		"00001609693865378515002000367941.1.1.1", ".orderly-guard", "{http.request.host}", ".", "..", "%2e%2e%2f", "\u202eexe", "\x1b[2J",
	}
	forms := []string{"{query.prefix}", "user_{query.prefix}", "user_{query.prefix}_"}
	parent := testcaddy.TempDir(t)
	site := "reverse_proxy {$UPSTREAM}"
	for form, prefix := range forms {
		site = fmt.Sprintf("serialize /%d {\npath {$DIR}\nprefix %s\n}\n", form, prefix) + site
	}
	c := start(t, setup{dir: filepath.Join(parent, "locks"), site: site})
	for form := range forms {
		var holders, waiters []<-chan testcaddy.Answer
		request := func(name string, value int) <-chan testcaddy.Answer {
			query := url.Values{"name": {fmt.Sprint(name, form, value)}, "prefix": {values[value]}, "gate": {""}}
			return c.getting(fmt.Sprintf("/%d?%s", form, query.Encode()))
		}
		for i := range values {
			holders = append(holders, request("holder", i))
			c.AwaitEntry(fmt.Sprint("holder", form, i))
		}
		if files := lockFiles(t, c.dir); len(files) != len(values) {
			t.Errorf("%s: %d lock files for %d queues: %q", forms[form], len(files), len(values), files)
		}
		if names := fileNames(t, parent); len(names) != 1 {
			t.Errorf("%s: files beside the lock directory: %q", forms[form], names)
		}
		for i := range values {
			waiters = append(waiters, request("waiter", i))
		}
		c.awaitTickets(2 * len(values))
		for i := range values { // each waits for the holder of its own queue
			c.WantNever(fmt.Sprint("waiter", form, i))
			c.Open(fmt.Sprint("holder", form, i))
			c.AwaitEntry(fmt.Sprint("waiter", form, i))
		}
		c.OpenAll()
		c.wantServed(append(holders, waiters...)...)
		c.awaitTickets(0)
	}
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

// Bug: one site had a queue for each spelling of its host, so two requests were inside. A
// pause of another spelling than the queue's was accepted, and paused nothing.
func TestSpellingsOfHost(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine string) {
		allVersions(t, func(t *testing.T, client *http.Client) {
			c := start(t, setup{tls: true, site: behindQueue("prefix site_{host}_\nengine " + engine)})
			var answers []<-chan testcaddy.Answer
			for i, host := range []string{"localhost", "LOCALHOST", "LocalHost"} {
				url := strings.Replace(c.url, "localhost", host, 1) + fmt.Sprintf("/?name=%d&gate", i)
				answers = append(answers, inBackground(func() testcaddy.Answer { return do(client, "GET", url, "") }))
				c.awaitQueue("site_localhost_", 1, i)
			}
			if queues := c.queues(); len(queues) != 1 {
				t.Errorf("the queues are %+v", queues)
			}
			c.order("site_LocalHost_", "pause").Want(t, http.StatusNotFound)
			c.pause("site_localhost_", "0")
			c.resume("site_localhost_")
			for i := range answers {
				c.Open(fmt.Sprint(i))
			}
			c.wantServed(answers...)
			c.WantOrder("0", "1", "2")
		})
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
		seen = append(seen, c.Visit("holder").Header.Get("X-Queue"))
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

// One queue is the same directory and the same prefix, whatever the site, the
// path's spelling or the rest of the settings.
func TestSameQueueAcrossSites(t *testing.T) {
	t.Parallel()
	dir := testcaddy.TempDir(t)
	link := filepath.Join(testcaddy.TempDir(t), "link")
	check(t, os.Symlink(dir, link))
	c := start(t, setup{dir: dir, env: map[string]string{"LINK": link}, site: `
		handle /a {
			serialize {
				path {$DIR}
			}
			reverse_proxy {$UPSTREAM}
		}
		handle /b {
			serialize {
				path {$LINK}/../` + filepath.Base(link) + `/
				prefix serializer_
				timeout 20s
				queue_length 5
			}
			reverse_proxy {$UPSTREAM}
		}`})
	c.wantTurns("/a", "/b")
}

// A configuration in JSON can say all that a Caddyfile can. Errors are refused as in a
// Caddyfile.
func TestJSON(t *testing.T) {
	t.Parallel()
	c := start(t, setup{})
	load := func(options string) error {
		return c.Load("application/json", strings.NewReplacer("$ADMIN", c.Admin, "$PORT", fmt.Sprint(c.port), "$DIR", c.dir,
			"$UPSTREAM", c.Upstream.Addr, "$OPTIONS", options).Replace(`{
			"admin": {"listen": "$ADMIN"},
			"apps": {"http": {"servers": {"main": {"listen": [":$PORT"], "automatic_https": {"disable": true}, "routes": [{"handle": [
				{"handler": "unique_ids", "layout": "threaded", "node": "random", "shards": 3, "trust": "X-Request-Id"},
				{"handler": "serialize", "path": "$DIR", $OPTIONS},
				{"handler": "reverse_proxy", "upstreams": [{"dial": "$UPSTREAM"}]}
			]}]}}}}
		}`))
	}
	check(t, load(`"prefix": "json_{http.request.host}_", "skip_methods": ["GET", "HEAD"], "timeout": "5s", "queue_length": 7,
		"error_code": 429, "error_response": {"content_type": "text/plain", "body": "busy"}, "concurrency": 2,
		"shared_methods": ["PROPFIND"], "hold_timeout": "1m", "on_disconnect": "cancel", "buffer": "1MiB", "engine": {"engine": "file"}`))
	holder := c.send("POST", "name=holder&gate")
	c.AwaitEntry("holder")
	c.get("/?name=skips").Want(t, http.StatusOK)
	if files := lockFiles(t, c.dir); len(files) != 1 || !strings.HasPrefix(files[0], "json_127.0.0.1_") {
		t.Errorf("lock files %v", files)
	}
	c.release(holder)
	for _, test := range []struct{ options, want string }{
		{`"que_len": 1`, "unknown field"},
		{`"prefix": "a/b"`, "without a path separator"},
		{`"timeout": -1`, "timeout -1ns: expected a duration of 0s or more"},
		{`"error_code": 200`, "error_code 200: expected a status from 400 to 599"},
		{`"queue_length": -1`, "queue_length -1: expected"},
		{`"on_disconnect": "stop"`, "expected finish or cancel"},
		{`"buffer": "much"`, "number of bytes"},
		{`"engine": {"engine": "redis"}`, "redis"},
	} {
		if err := load(test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.options, err, test.want)
		}
		c.get("/?name=old").Want(t, http.StatusOK)
	}
}
