//go:build unix

package integration_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// wantStatus fails the test unless the status page has texts.
func (c *caddy) wantStatus(texts ...string) {
	c.t.Helper()
	page := c.get("/status").Text
	for _, text := range texts {
		if !strings.Contains(page, text) {
			c.t.Errorf("the page has no %q:\n%s", text, page)
		}
	}
}

// The controls accept requests only from the page: its reader is logged in, and another
// site could send requests in the reader's name.
func TestStatusControls(t *testing.T) {
	t.Parallel()
	c := start(t, setup{site: manyQueues("", "checkout_", "reports_")})
	c.fill(0, 2)
	queue := c.queue("checkout_")
	if page := c.get("/status?filter=check").Text; !strings.Contains(page, "1 queue of 2") || !strings.Contains(page, "/0/checkout/0") || strings.Contains(page, ">reports_<") {
		t.Errorf("the filtered page is %s", page)
	}
	order := func(action, token string) string {
		return url.Values{"action": {action}, "queue": {queue.Path + "/" + queue.Prefix}, "token": {token}}.Encode()
	}
	press := func(order string, status int) {
		do(newClient(t, "1.1"), "POST", c.url+"/status?"+order, "", "Sec-Fetch-Site", "same-origin").Want(t, status)
	}
	c.wantStatus(`data-action="pause"`)
	press(order("pause", "")+"&for=10m", http.StatusOK)
	press(order("pause", "")+"&for=long", http.StatusBadRequest)
	c.wantStatus(">paused<", "Paused until ", `data-action="resume"`)
	press(order("resume", ""), http.StatusOK)
	if strings.Contains(c.get("/status").Text, ">paused<") {
		t.Error("the page still shows a pause")
	}
	waiting, own := queue.Tickets[1].Token, c.url
	for _, test := range []struct {
		name, order, site, origin string
		status                    int
		says                      string
	}{
		{"another site", order("evict", waiting), "cross-site", "https://evil.example", 403, "another origin"},
		{"another site that says it is none", order("evict", waiting), "none", "", 403, "another origin"},
		{"another site, by an older browser", order("evict", waiting), "", "https://evil.example", 403, "another origin"},
		{"a sandboxed page", order("evict", waiting), "", "null", 403, "another origin"},
		{"nobody knows who", order("evict", waiting), "", "", 403, "admin API"},
		{"an action that is not there", order("burn", waiting), "same-origin", own, 400, "burn"},
		{"no number", order("evict", "x"), "same-origin", own, 400, "number"},
		{"no such ticket", order("evict", "1"), "same-origin", own, 404, "no ticket 1 in queue"},
		{"the page", order("evict", waiting), "same-origin", own, 200, `"state":"waiting"`},
		{"the page in an older browser", order("evict", queue.Tickets[0].Token), "", own, 200, `"state":"inside"`},
	} {
		var header []string
		for name, value := range map[string]string{"Sec-Fetch-Site": test.site, "Origin": test.origin} {
			if value != "" {
				header = append(header, name, value)
			}
		}
		a := do(newClient(t, "1.1"), "POST", c.url+"/status?"+test.order, "", header...)
		if a.StatusCode != test.status || !strings.Contains(a.Text, test.says) || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s; expected %d with %q", test.name, a.StatusCode, a.Text, test.status, test.says)
		}
	}
	a := do(newClient(t, "1.1"), "DELETE", c.url+"/status", "")
	if a.StatusCode != 405 || a.Header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("DELETE: %d, Allow: %s", a.StatusCode, a.Header.Get("Allow"))
	}
}

// Bug: where a site is matched by its port only, a page of another site could pause its queues:
// it let its own name lead to this server, so it was of the same origin (DNS rebinding). Bug: an
// HTTPS page took the page of the same name without TLS for itself.
func TestStatusControlsOnlyUnderItsNames(t *testing.T) {
	t.Parallel()
	site := func(controls string) string {
		return " {\nserialize_status {\n" + controls + "\n}\n}\n"
	}
	ports := [4]string{}
	for i := range ports {
		_, ports[i], _ = net.SplitHostPort(testprocess.FreeAddr(t))
	}
	start(t, setup{site: "respond ok", more: "http://:" + ports[0] + site("controls") +
		"http://:" + ports[1] + site("controls queues.example:8092 10.0.0.7") +
		"http://shop.example:" + ports[2] + ", http://*.tenants.example:" + ports[2] + site("controls") +
		"https://localhost:" + ports[3] + " {\ntls {$CERTIFICATE} {$KEY}\nserialize_status {\ncontrols\n}\n}\n"})
	const named = 404 // for a queue that is not there
	for _, test := range []struct {
		port   int
		host   string
		status int
	}{
		{0, "evil.example", 403}, {0, "10.0.0.7", 403}, {0, "localhost.evil.example", 403}, {0, "127.0.0.1.evil.example", 403},
		{0, "localhost", named}, {0, "LocalHost", named}, {0, "127.0.0.1", named}, {0, "[::1]", named},
		{1, "evil.example", 403}, {1, "localhost", 403}, {1, "queues.example", named}, {1, "10.0.0.7", named},
		{2, "shop.example", named}, {2, "a.tenants.example", named},
		{3, "localhost", 403}, // from http://localhost
	} {
		address := "http://127.0.0.1:" + ports[test.port]
		client := newClient(t, "1.1")
		if test.port == 3 {
			address = "https://localhost:" + ports[test.port]
		}
		for _, field := range []string{"Origin", "Sec-Fetch-Site"} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", address+"/?action=pause&queue=none_", nil)
			check(t, err)
			r.Host = test.host + ":" + ports[test.port]
			r.Header.Set("Origin", "http://"+r.Host)
			if field == "Sec-Fetch-Site" {
				r.Header.Set(field, "same-origin")
			}
			a := testcaddy.Do(client, r)
			says := map[bool]string{true: "another origin", false: "controls in serialize_status"}[test.port == 3]
			if a.Err != nil || a.StatusCode != test.status || test.status == 403 && !strings.Contains(a.Text, says) {
				t.Errorf("%s of site %d, %s: %v; expected %d", test.host, test.port, field, a, test.status)
			}
		}
	}
}

// A FastCGI application goes on when its turn has been revoked, and so does the turn. The
// page, the list, the answer to an eviction and the log say so. Bugs: none did, and nobody
// waited; the log said nothing before the end of the turn, and that might be never;
// the page did not name hold_timeout for a browser that may get the waiting page.
func TestRevokedTurnsAreTold(t *testing.T) {
	t.Parallel()
	for name, waitingPage := range map[string]string{"without a page": "", "with a page": "waiting_page"} {
		t.Run(name, func(t *testing.T) { wantRevocationTold(t, waitingPage) })
	}
}

func wantRevocationTold(t *testing.T, waitingPage string) {
	t.Parallel()
	application, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	c := start(t, setup{site: fmt.Sprintf(`
		serialize_status /queues
		serialize {
			path {$DIR}
			prefix a_
			hold_timeout 1s
			%s
		}
		reverse_proxy %s {
			transport fastcgi
		}`, waitingPage, application.Addr())})
	answer := c.getting("/", "Accept", "text/html")
	connection, err := application.Accept()
	check(t, err)
	const says = ", revoked "
	wait.Until(t, "the page says that the turn was revoked", func() bool {
		page := c.get("/queues").Text
		return strings.Contains(page, "inside for ") && strings.Contains(page, says) && strings.Contains(page, "read_timeout")
	})
	c.wantCommand(0, "inside, revoked ", "queues")
	token := c.queue("a_").Tickets[0].Token
	if out := c.wantCommand(0, "the turn ends only when its handlers return", "evict", "--prefix", "a_", "--force", token); !strings.Contains(out, "read_timeout") {
		t.Errorf("evict: %s", out)
	}
	revoked := c.awaitEntryOf("turn revoked")
	ignored := c.awaitEntry("the log says that it is still inside", func(e entry) bool {
		return strings.HasPrefix(e.Text("msg"), "still inside") && strings.Contains(e.Text("msg"), "read_timeout")
	})
	for _, line := range []entry{revoked, ignored} {
		if line["level"] != "warn" || line["queue"] != "a_" || line["token"] != token || !strings.Contains(line.Text("cause"), "hold_timeout") {
			t.Errorf("the log says %v", line)
		}
	}
	check(t, connection.Close())
	check(t, application.Close())
	testcaddy.Await(t, answer)
	c.awaitQueue("a_", 0, 0)
}
