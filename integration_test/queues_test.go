//go:build unix

package integration_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Prefixes that begin with another prefix are separate queues, even in the same
// directory.
func TestPrefixesAreQueues(t *testing.T) {
	t.Parallel()
	prefixes := []string{"a_", "a_b_", "a_0", "a_1", "a", "a_0000"}
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			prefix {query.prefix}
		}
		reverse_proxy {$UPSTREAM}`})
	var answers []<-chan testcaddy.Answer
	for _, prefix := range prefixes {
		answers = append(answers, c.getting("/?gate&name=holder+of+"+prefix+"&prefix="+prefix))
		upstream.AwaitEntry("holder of " + prefix)
	}
	// All are inside. One more in each waits.
	for _, prefix := range prefixes {
		answers = append(answers, c.getting("/?name=waiter+of+"+prefix+"&prefix="+prefix))
	}
	c.awaitTickets(2 * len(prefixes))
	for _, prefix := range prefixes {
		upstream.WantNever("waiter of " + prefix)
	}
	// Each waits for the one of its own queue.
	for i, prefix := range slices.Backward(prefixes) {
		upstream.Open("holder of " + prefix)
		upstream.AwaitEntry("waiter of " + prefix)
		for _, other := range prefixes[:i] {
			upstream.WantNever("waiter of " + other)
		}
	}
	for _, answer := range answers {
		(<-answer).Want(t, http.StatusOK)
	}
	c.wantNoTickets()
}

// Whatever value a placeholder in the prefix has, the lock file stays in the directory,
// and different values are different queues.
func TestHostilePrefixes(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"dots":             "../../x",
		"absolute":         "/etc/passwd",
		"backslash":        `..\..\x`,
		"long":             strings.Repeat("x", 3000),
		"long, other end":  strings.Repeat("x", 2999) + "y",
		"not UTF-8":        "\xff\xfe\x80",
		"other bytes":      "\xff\xfe\x81",
		"empty":            "",
		"NUL":              "a\x00b",
		"line feed":        "a\nb",
		"zeros":            "a00007",
		"timestamp":        "00001609693865378515002000367941.1.1.1",
		"own file":         ".orderly-guard",
		"placeholder":      "{http.request.host}",
		"a dot":            ".",
		"two dots":         "..",
		"percent":          "%2e%2e%2f",
		"right to left":    "\u202eexe",
		"escape sequences": "\x1b[2J",
	}
	for _, test := range []struct{ name, prefix string }{
		{"alone", "{query.prefix}"},
		{"with text before", "user_{query.prefix}"},
		{"with text around", "user_{query.prefix}_"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			parent := testcaddy.TempDir(t)
			c := start(t, setup{upstream: upstream, dir: filepath.Join(parent, "locks"), site: `
				serialize {
					path {$DIR}
					prefix ` + test.prefix + `
				}
				reverse_proxy {$UPSTREAM}`})
			var answers []<-chan testcaddy.Answer
			for name, value := range values {
				query := url.Values{"name": {name}, "prefix": {value}, "gate": {""}}
				answers = append(answers, c.getting("/?"+query.Encode()))
				upstream.AwaitEntry(name)
			}
			if files := lockFiles(t, c.dir); len(files) != len(values) {
				t.Errorf("%d lock files for %d queues: %q", len(files), len(values), files)
			}
			if names := fileNames(t, parent); len(names) != 1 {
				t.Errorf("files beside the lock directory: %q", names)
			}
			upstream.OpenAll()
			for _, answer := range answers {
				(<-answer).Want(t, http.StatusOK)
			}
			c.wantNoTickets()
		})
	}
}

// Bug: other processes ignored tickets of queues whose names began like the engine's own
// files, so two processes each admitted one request.
func TestOwnFileNamesAsPrefix(t *testing.T) {
	t.Parallel()
	const site = `
		serialize {
			path {$DIR}
			prefix {query.prefix}
		}
		reverse_proxy {$UPSTREAM}`
	for _, prefix := range []string{".orderly-owner-", ".orderly-evict-", ".orderly-trial-"} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			one := start(t, setup{site: site, upstream: upstream})
			other := start(t, setup{site: site, upstream: upstream, dir: one.dir})
			first := one.getting("/?name=first&gate&prefix=" + prefix)
			upstream.AwaitEntry("first")
			second := other.getting("/?name=second&prefix=" + prefix)
			one.awaitTickets(2)
			upstream.WantNever("second")
			upstream.Open("first")
			(<-first).Want(t, http.StatusOK)
			(<-second).Want(t, http.StatusOK)
			upstream.WantAlone()
		})
	}
}

// An unknown placeholder is replaced by an empty text, and the request is served.
func TestUnknownPlaceholderInPrefix(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{upstream: upstream, site: `
		serialize {
			path {$DIR}
			prefix x_{http.request.header.No-Such}_{no.such.placeholder}
		}
		reverse_proxy {$UPSTREAM} {
			header_up X-Queue {http.serialize.queue}
		}`})
	c.get("/").Want(t, http.StatusOK)
	if got := upstream.Visit("").Header.Get("X-Queue"); got != "x__" {
		t.Errorf("queue %q, want x__", got)
	}
}

// One queue is the same directory and the same prefix, whatever the site, the
// path's spelling or the rest of the settings.
func TestSameQueueAcrossSites(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	dir := testcaddy.TempDir(t)
	link := filepath.Join(testcaddy.TempDir(t), "link")
	check(t, os.Symlink(dir, link))
	c := start(t, setup{upstream: upstream, dir: dir, env: map[string]string{"LINK": link}, site: `
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
	c.wantTurns(upstream, "/a", "/b")
}

// A configuration in JSON can say all that a Caddyfile can. It is loaded, works, and is
// read back unchanged through the admin API.
func TestConfigurationReadBack(t *testing.T) {
	t.Parallel()
	upstream := testcaddy.NewUpstream(t)
	c := start(t, setup{site: "respond old"})
	config := strings.NewReplacer("$PORT", c.url[strings.LastIndex(c.url, ":"):], "$DIR", c.dir,
		"$UPSTREAM", upstream.Addr, "$ADMIN", c.Admin).Replace(`{
		"admin": {"listen": "$ADMIN", "config": {"persist": false}},
		"apps": {"http": {"servers": {"main": {
			"listen": ["$PORT"],
			"automatic_https": {"disable": true},
			"routes": [{"handle": [
				{"handler": "unique_ids", "layout": "threaded", "node": "random", "shards": 3, "trust": "X-Request-Id"},
				{"handler": "serialize",
					"path": "$DIR",
					"prefix": "json_{http.request.host}_",
					"skip_methods": ["GET", "HEAD"],
					"timeout": "5s",
					"queue_length": 7,
					"error_code": 429,
					"error_response": {"content_type": "text/plain", "body": "busy"},
					"concurrency": 2,
					"shared_methods": ["PROPFIND"],
					"hold_timeout": "1m",
					"on_disconnect": "cancel",
					"buffer": "1MiB",
					"engine": {"engine": "file"}},
				{"handler": "reverse_proxy", "upstreams": [{"dial": "$UPSTREAM"}]}
			]}]
		}}}}
	}`)
	check(t, c.Load("application/json", config))
	c.awaitOneListener()
	holder := inBackground(func() testcaddy.Answer { return do(newClient(t, "1.1"), "POST", c.url+"/?name=holder&gate", "") })
	upstream.AwaitEntry("holder")
	c.get("/?name=skips").Want(t, http.StatusOK)
	if files := lockFiles(t, c.dir); len(files) != 1 || !strings.HasPrefix(files[0], "json_127.0.0.1_") {
		t.Errorf("lock files %v", files)
	}
	release(t, upstream, holder)
	compareAdapted(t, c.Ask("/config/"), config)

	var queueLength int
	path := "/config/apps/http/servers/main/routes/0/handle/1/queue_length"
	check(t, json.Unmarshal([]byte(c.Ask(path)), &queueLength))
	if queueLength != 7 {
		t.Errorf("queue_length read back as %d", queueLength)
	}
}

// Errors in JSON are refused as in a Caddyfile.
func TestWrongJSON(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, handler, want string }{
		{"unknown field", `"que_len": 1`, "unknown field"},
		{"path separator", `"prefix": "a/b"`, "without a path separator"},
		{"negative timeout", `"timeout": -1`, "timeout -1ns: expected a duration of 0 or more"},
		{"negative hold_timeout", `"hold_timeout": "-1s"`, "hold_timeout -1s: expected"},
		{"wrong status", `"error_code": 200`, "error_code 200: expected a status from 400 to 599"},
		{"half an error response", `"error_response": {"content_type": "text/plain"}`, "expected a MIME type and a body"},
		{"negative queue_length", `"queue_length": -1`, "queue_length -1: expected"},
		{"negative concurrency", `"concurrency": -1`, "concurrency -1: expected"},
		{"on_disconnect", `"on_disconnect": "stop"`, "expected finish or cancel"},
		{"buffer", `"buffer": "much"`, "number of bytes"},
		{"unknown engine", `"engine": {"engine": "redis"}`, "redis"},
		{"method", `"skip_methods": ["G{T"]`, "is not a request method"},
		{"ambiguous prefix", `"prefix": "a00001"`, "four zeros and a digit"},
	}
	c := start(t, setup{site: "respond old"})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := c.Load("application/json", `{
				"admin": {"listen": "`+c.Admin+`"},
				"apps": {"http": {"servers": {"main": {
					"listen": ["127.0.0.1:0"],
					"routes": [{"handle": [{"handler": "serialize", "path": "`+c.dir+`", `+test.handler+`}]}]
				}}}}
			}`)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error with %q", err, test.want)
			}
			if body := c.get("/").Want(t, http.StatusOK).Text; body != "old" {
				t.Errorf("the old configuration answers %q", body)
			}
		})
	}
}
