package integration_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// site is a server with one queue in front of an upstream.
type site struct {
	*testcaddy.Server
	*testcaddy.Upstream
	host string // and port, of the server's site
	url  string // the same as a URL
	dir  string // of the lock files

}

// newSite starts a server whose queue has more options than path and prefix.
func newSite(t *testing.T, options string) *site {
	t.Helper()
	s := unstartedSite(t)
	s.start(t, s.caddyfile(options))
	return s
}

// eachEngine runs a test with each engine that needs no other server.
func eachEngine(t *testing.T, test func(t *testing.T, engine string)) {
	for _, engine := range []string{"file", "memory"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, engine)
		})
	}
}

// unstartedSite has all but its server.
func unstartedSite(t *testing.T) *site {
	t.Helper()
	return (&site{Upstream: testcaddy.NewGatedUpstream(t), dir: t.TempDir()}).unstarted(t)
}

// unstarted is another site for the same upstream and lock files.
func (s *site) unstarted(t *testing.T) *site {
	t.Helper()
	host := testcaddy.ReserveAddr(t)
	return &site{Upstream: s.Upstream, host: host, url: "http://" + host + "/", dir: s.dir}
}

// join starts a server of the same queue.
func (s *site) join(t *testing.T, options string) *site {
	t.Helper()
	other := s.unstarted(t)
	other.start(t, other.caddyfile(options))
	return other
}

// start starts the server with a Caddyfile.
func (s *site) start(t *testing.T, caddyfile string, env ...string) {
	t.Helper()
	s.Server = testcaddy.Start(t, caddyfile, env...)
}

// Reload gives the server another Caddyfile, and waits until only that takes requests.
func (s *site) Reload(t *testing.T, caddyfile string) {
	t.Helper()
	s.Server.Reload(caddyfile)
	testcaddy.AwaitOneListener(t, s.host)
}

// caddyfile is that of a queue. Its requests wait long enough for a slow
// machine.
func (s *site) caddyfile(options string) string {
	return `http://` + s.host + ` {
	serialize {
		path ` + s.dir + `
		prefix a_
		timeout 10m
		` + options + `
	}
	reverse_proxy ` + s.Upstream.Addr + `
}
`
}

// send sends a request with a name.
func (s *site) send(t *testing.T, method, name string) <-chan testcaddy.Answer {
	t.Helper()
	return testcaddy.Send(t, method, s.url+name, "")
}

// holder brings a request inside, which stays until the test lets it go.
func (s *site) holder(t *testing.T) (one <-chan testcaddy.Answer, inside *testcaddy.Visit) {
	t.Helper()
	one = s.send(t, "GET", "one")
	return one, s.NextNamed("one")
}

// holderAndWaiter also sends a request to a server of the same queue, where it waits.
func (s *site) holderAndWaiter(t *testing.T, at *site) (one <-chan testcaddy.Answer, inside *testcaddy.Visit,
	two <-chan testcaddy.Answer, queue serializer.QueueState) {
	t.Helper()
	one, inside = s.holder(t)
	two = at.send(t, "GET", "two")
	return one, inside, two, s.awaitTickets(t, 2)
}

// queues are the server's queues, from its admin API.
func (s *site) queues(t *testing.T) []serializer.QueueState {
	t.Helper()
	var queues []serializer.QueueState
	fromJSON(t, s.Ask("/serialize/queues"), &queues)
	return queues
}

// awaitTickets waits until the queue a_ has so many tickets, and returns it.
func (s *site) awaitTickets(t *testing.T, n int) (queue serializer.QueueState) {
	t.Helper()
	wait.Eventually(t, "the queue has all tickets", func() error {
		for _, q := range s.queues(t) {
			if q.Prefix == "a_" {
				queue = q
			}
		}
		return wantTickets(queue, n)
	})
	return queue
}

// awaitLog waits for a number of lines with a message.
func (s *site) awaitLog(t *testing.T, message string, n int) (lines []testcaddy.Entry) {
	t.Helper()
	wait.Eventually(t, "the log has all lines", func() error {
		if lines = s.Log.Entries(message); len(lines) != n {
			return fmt.Errorf("%d lines %q; expected %d", len(lines), message, n)
		}
		return nil
	})
	return lines
}

func fromJSON(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("reading JSON: %v\n%s", err, text)
	}
}
