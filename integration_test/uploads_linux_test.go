package integration_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// bodyFiles is how many files for bodies a process has open, or -1 while one has a name: a
// file loses it as soon as it is made.
func (c *caddy) bodyFiles(dir string) (n int) {
	c.t.Helper()
	named, err := os.ReadDir(dir)
	check(c.t, err)
	if len(named) > 0 {
		return -1
	}
	descriptors := fmt.Sprintf("/proc/%d/fd", c.PID)
	files, err := os.ReadDir(descriptors)
	check(c.t, err)
	for _, file := range files {
		if target, err := os.Readlink(filepath.Join(descriptors, file.Name())); err == nil && strings.HasPrefix(target, dir+"/") {
			n++
		}
	}
	return n
}

// The file of a body has no name, and is closed when the request is done,
// however it ends.
func TestBodyFileIsFreed(t *testing.T) {
	t.Parallel()
	dir := testcaddy.TempDir(t)
	breaks := testcaddy.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		panic(http.ErrAbortHandler)
	}))
	c := start(t, setup{env: map[string]string{"TMPDIR": dir, "BREAKS": breaks}, site: `
		serialize /deaf {
			path {$DIR}
		}
		serialize /late {
			path {$DIR}
			timeout 1s
		}
		serialize {
			path {$DIR}
		}
		respond /deaf "unread"
		reverse_proxy /breaks {$BREAKS}
		reverse_proxy {$UPSTREAM}
		handle_errors {
			respond "refused"
		}`})
	body := strings.Repeat("x", 1<<20)
	for path, status := range map[string]int{"/?name=served": 200, "/deaf": 200, "/?name=failed&status=500": 500} {
		do(newClient(t, "1.1"), "POST", c.url+path, body).Want(t, status)
	}
	// Bug: if the upstream broke off, the file stayed until memory was collected.
	do(newClient(t, "1.1"), "POST", c.url+"/breaks", body)
	wait.Until(t, "all files are closed", func() bool { return c.bodyFiles(dir) == 0 })

	holder := c.holder(t)
	refused := inBackground(func() testcaddy.Answer { return do(newClient(t, "1.1"), "POST", c.url+"/late?name=refused", body) })
	wait.Until(t, "a body is in a file", func() bool { return c.bodyFiles(dir) == 1 })
	conn := c.dial(head("broken", 1<<20) + body[:100<<10])
	wait.Until(t, "another is, too", func() bool { return c.bodyFiles(dir) == 2 })
	check(t, conn.Close())
	wait.Until(t, "it is closed", func() bool { return c.bodyFiles(dir) == 1 || c.bodyFiles(dir) == 0 })
	(<-refused).Want(t, http.StatusServiceUnavailable)
	wait.Until(t, "all files are closed", func() bool { return c.bodyFiles(dir) == 0 })
	c.release(holder)
}

// If no more of a body can be stored, the request is refused.
func TestBodyFileDiskFull(t *testing.T) {
	t.Parallel()
	s := setup{global: "metrics", dir: testcaddy.TempDir(t), site: "serialize {\npath {$HOME}/queues\n}\nreverse_proxy {$UPSTREAM}"}
	s.env = map[string]string{"TMPDIR": s.dir}
	onTmpfs(t, &s, "size=256k")
	c := start(t, s)
	// Little more than fits: a server that hangs up while much of a body is on its
	// way takes its answer back with a reset.
	part := strings.Repeat("x", 448<<10)
	do(newClient(t, "1.1"), "POST", c.url+"/?name=full", part).Want(t, http.StatusServiceUnavailable)
	if got := answerOf(t, c.dial(head("full", 2<<20)+part)); got != http.StatusServiceUnavailable {
		t.Errorf("answered %d, want 503", got)
	}
	c.WantNever("full")
	wait.Until(t, "the log names path and error", func() bool { // bug: the error began with a place in the code
		return strings.Contains(c.Log.String(), `"error":"writing a request body to a file in `+s.dir+": the file failed: no space left on device")
	})
	c.wantMetric(`requests_total{outcome="storage",queue="serializer_"}`, "2")
	do(newClient(t, "1.1"), "POST", c.url+"/?name=small", strings.Repeat("x", 128<<10)).Want(t, http.StatusOK)
}

// With `buffer off`, a client that hangs up while it waits is noticed, whatever it has sent and
// whatever is around its connection, though nothing of its body is read.
func TestHangUpBeforeStreamedBodyIsRead(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"plain":    {},
		"TLS":      {tls: true},
		"proxied":  {servers: "listener_wrappers {\nproxy_protocol\n}"},
		"both":     {tls: true, servers: "listener_wrappers {\nproxy_protocol\ntls\n}"},
		"in nests": {site: "serialize {\npath {$DIR}\nprefix {query.name}_\ntimeout 10m\nbuffer off\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues := 1 + strings.Count(s.site, "serialize")
			s.site = "route {\n" + s.site + behindQueue("timeout 10m\nbuffer off") + "\n}"
			s.dir = testcaddy.TempDir(t)
			other := start(t, setup{site: serialized, dir: s.dir}) // whose clients need no special connection
			holder := other.holder(t)
			c := start(t, s)
			for _, size := range []int{0, 100, 40 << 10} {
				conn := c.dial("")
				if strings.Contains(s.servers, "proxy_protocol") {
					_, err := io.WriteString(conn, "PROXY UNKNOWN\r\n")
					check(t, err)
				}
				wire, host := net.Conn(conn), "127.0.0.1"
				if s.tls {
					wire, host = tls.Client(conn, insecure.Clone()), "localhost"
				}
				_, err := io.WriteString(wire, strings.Replace(head("waiter", 1<<20), "127.0.0.1", host, 1)+strings.Repeat("x", size))
				check(t, err)
				c.awaitTickets(1 + queues)
				check(t, conn.CloseWrite())
				c.awaitTickets(1)
			}
			other.release(holder)
			c.WantNever("waiter")
		})
	}
}
