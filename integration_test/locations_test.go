//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// The example of mod_serializer's document behaves as its tables of effective
// values say. TestCaddyfileAdapt checks the values themselves.
func TestLocations(t *testing.T) {
	t.Parallel()
	const timeoutA, timeoutAB = 100 * time.Millisecond, 250 * time.Millisecond
	tests := []struct {
		path        string
		prefix      string // of the queue; none if there is no queue
		timeout     time.Duration
		skips       []string
		status      int // of a refusal
		contentType string
		body        string
	}{
		{path: "/a", prefix: "a_", timeout: timeoutA, skips: []string{"OPTIONS", "GET"}, status: 503},
		{path: "/a/x", prefix: "a_", timeout: timeoutA, skips: []string{"OPTIONS", "GET"}, status: 503},
		{path: "/a/b", prefix: "ab_", timeout: timeoutAB, skips: []string{"OPTIONS", "GET"},
			status: 404, contentType: "application/json", body: `{"error":"Queue timeout"}`},
		{path: "/a/b/x", prefix: "ab_", timeout: timeoutAB, skips: []string{"OPTIONS", "GET"},
			status: 404, contentType: "application/json", body: `{"error":"Queue timeout"}`},
		{path: "/a/b/c", prefix: "abc_", timeout: timeoutAB, skips: []string{"GET", "OPTIONS", "PATCH"}, status: 500},
		{path: "/a/b/c/d", prefix: "abc_", timeout: timeoutAB, skips: []string{"GET", "OPTIONS", "PATCH"}, status: 500},
		{path: "/a/c/"},
		{path: "/a/c/d"},
		{path: "/ab"},
		{path: "/"},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{more: documentExample(t, timeoutA, timeoutAB), upstream: upstream})
			client := newClient(t, "1.1")
			request := func(method, query string) testcaddy.Answer {
				return do(client, method, c.url+test.path+"?"+query, "")
			}
			holder := bringInside(t, upstream, func() testcaddy.Answer { return request("POST", "name=holder&gate") })
			if test.prefix == "" {
				request("POST", "name=second").Want(t, http.StatusOK)
				upstream.WantOrder("holder", "second")
				return
			}
			if files := lockFiles(t, c.dir); len(files) != 1 || !strings.HasPrefix(files[0], test.prefix+"0000") {
				t.Errorf("lock files %v, want one with the prefix %s", files, test.prefix)
			}
			for _, method := range test.skips {
				request(method, "name="+method).Want(t, http.StatusOK)
			}
			sent := time.Now()
			refusal := request("POST", "name=refused").Want(t, test.status)
			if waited := time.Since(sent); waited < test.timeout {
				t.Errorf("refused after %v, want %v", waited, test.timeout)
			}
			if got := refusal.Header.Get("Content-Type"); got != test.contentType || refusal.Text != test.body {
				t.Errorf("refused with the content type %q and the body %q, want %q and %q",
					got, refusal.Text, test.contentType, test.body)
			}
			release(t, upstream, holder)
			upstream.WantOrder(append([]string{"holder"}, test.skips...)...)
			c.wantNoTickets()
		})
	}
}

// In /a at most 20 may wait; /a/b takes the limit back.
func TestLocationsQueueLength(t *testing.T) {
	t.Parallel()
	tests := []struct {
		path  string
		limit int
	}{
		{"/a", 20},
		{"/a/b", 0},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			t.Parallel()
			upstream := testcaddy.NewUpstream(t)
			c := start(t, setup{more: documentExample(t, time.Minute, time.Minute), upstream: upstream})
			client := newClient(t, "1.1")
			post := func(query string) <-chan testcaddy.Answer {
				return inBackground(func() testcaddy.Answer { return do(client, "POST", c.url+test.path+"?"+query, "") })
			}
			answers := []<-chan testcaddy.Answer{post("name=holder&gate")}
			upstream.AwaitEntry("holder")
			for i := range 20 {
				answers = append(answers, post(fmt.Sprint("name=", i)))
			}
			c.awaitTickets(21)
			last := post("name=last")
			if test.limit > 0 {
				(<-last).Want(t, http.StatusServiceUnavailable)
				upstream.WantNever("last")
			} else {
				c.awaitTickets(22)
				answers = append(answers, last)
			}
			upstream.Open("holder")
			for _, answer := range answers {
				(<-answer).Want(t, http.StatusOK)
			}
		})
	}
}

// documentExample is the example of mod_serializer's document as a Caddyfile,
// with the timeouts given.
func documentExample(t *testing.T, timeoutA, timeoutAB time.Duration) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(adaptDir, "mod_serializer.caddyfiletest"))
	check(t, err)
	caddyfile, _, _ := strings.Cut(string(text), adaptLine)
	return strings.NewReplacer(
		"http://:8080", "{$SITE}",
		"127.0.0.1:9000", "{$UPSTREAM}",
		"/opt/serializer", "{$DIR}",
		"timeout 10s", "timeout "+timeoutA.String(),
		"timeout 20s", "timeout "+timeoutAB.String(),
	).Replace(caddyfile)
}
