//go:build unix

package integration_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// slowUpstream begins at the head of a request, and works for a while without
// a look at its body.
type slowUpstream struct {
	addr  string
	began chan string
	ended chan string
}

func newSlowUpstream(t *testing.T, encrypted bool) *slowUpstream {
	u := &slowUpstream{began: make(chan string, 10), ended: make(chan string, 10)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		u.began <- name
		if name == "slow" {
			time.Sleep(time.Second)
		}
		u.ended <- name
	}))
	if encrypted {
		server.StartTLS()
	} else {
		server.Start()
	}
	u.addr = server.Listener.Addr().String()
	t.Cleanup(server.Close)
	return u
}

// wantTurnKept hangs up in the middle of a large body, and makes sure that the
// next request enters only once the upstream has ended.
func (u *slowUpstream) wantTurnKept(t *testing.T, c *caddy) {
	t.Helper()
	conn := c.dial()
	_, err := io.WriteString(conn, head("slow", 1<<20)+strings.Repeat("x", 100<<10))
	check(t, err)
	if name := <-u.began; name != "slow" {
		t.Fatalf("%s began", name)
	}
	next := c.getting("/?name=next")
	c.awaitTickets(2)
	check(t, conn.Close())
	select {
	case name := <-u.ended:
		if name != "slow" {
			t.Errorf("%s ended first", name)
		}
	case name := <-u.began:
		t.Errorf("%s entered while the upstream worked", name)
	}
	(<-next).want(t, http.StatusOK)
	c.wantNoTickets()
}

// A client that hung up in the middle of a body too large to be read ahead ended
// the turn, while the upstream, which had begun at the head, worked on.
func TestClientHangsUpInMidUpload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, buffer, proxy string
		encrypted           bool
	}{
		{"larger than the buffers", "1KiB 4KiB", "", false},
		{"nothing read ahead", "0", "", false},
		{"TLS", "1KiB 0", "transport http {\ntls\ntls_insecure_skip_verify\nversions 1.1\n}", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u := newSlowUpstream(t, test.encrypted)
			c := start(t, setup{env: map[string]string{"UPSTREAM": u.addr}, site: `
				serialize {
					path {$DIR}
					buffer ` + test.buffer + `
				}
				reverse_proxy {$UPSTREAM} {
					` + test.proxy + `
				}`})
			u.wantTurnKept(t, c)
		})
	}
}

// The same goes for an upstream of the error routes. Their proxy gave up at once,
// and the turn ended while the upstream worked.
func TestClientHangsUpInMidUploadOfErrorRoutes(t *testing.T) {
	t.Parallel()
	u := newSlowUpstream(t, false)
	c := start(t, setup{env: map[string]string{"UPSTREAM": u.addr}, site: `
		serialize {
			path {$DIR}
			buffer 1KiB 0
		}
		@slow query name=slow
		reverse_proxy @slow 127.0.0.1:1
		reverse_proxy {$UPSTREAM}
		handle_errors {
			reverse_proxy {$UPSTREAM}
		}`})
	u.wantTurnKept(t, c)
}

// hold_timeout ends the wait for such an upstream, too.
func TestClientHangsUpInMidUploadHoldTimeout(t *testing.T) {
	t.Parallel()
	working := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			<-working
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(working) })
	c := start(t, setup{env: map[string]string{"UPSTREAM": strings.TrimPrefix(server.URL, "http://")}, site: `
		serialize {
			path {$DIR}
			buffer 0
			hold_timeout 2s
		}
		reverse_proxy {$UPSTREAM}`})
	conn := c.dial()
	_, err := io.WriteString(conn, strings.Replace(head("stuck", 1<<20), "/?", "/stuck?", 1)+strings.Repeat("x", 10<<10))
	check(t, err)
	c.awaitTickets(1)
	next := c.getting("/")
	c.awaitTickets(2)
	check(t, conn.Close())
	(<-next).want(t, http.StatusOK)
	c.wantNoTickets()
}
