package integration_test

import (
	"encoding/json"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// site is a server with one queue in front of an upstream.
type site struct {
	*testcaddy.Server
	*testcaddy.Upstream
	url string // of the server's site
	dir string // of the lock files

	from []string // flags that tell commands where to look; nil is --path dir
}

// newSite starts a server whose queue has more options than path and prefix.
func newSite(t *testing.T, options string) *site {
	t.Helper()
	return joinSite(t, testcaddy.NewGatedUpstream(t), t.TempDir(), options)
}

// joinSite starts a server in front of an upstream that may have others already.
func joinSite(t *testing.T, upstream *testcaddy.Upstream, dir, options string) *site {
	t.Helper()
	addr := testcaddy.ReserveAddr(t)
	server := testcaddy.Start(t, queueSite(addr, upstream.Addr, dir, options))
	return &site{Server: server, Upstream: upstream, url: "http://" + addr + "/", dir: dir}
}

// queueSite is a Caddyfile with a queue. Its requests outwait a slow machine.
func queueSite(addr, upstream, dir, options string) string {
	return `http://` + addr + ` {
	serialize {
		path ` + dir + `
		prefix a_
		timeout 10m
		` + options + `
	}
	reverse_proxy ` + upstream + `
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
	fromJSON(t, testcaddy.Get(t, "http://"+s.Admin+"/serialize/queues").Text, &queues)
	return queues
}

// awaitTickets waits until the queue a_ has so many tickets, and returns it.
func (s *site) awaitTickets(t *testing.T, n int) (queue serializer.QueueState) {
	t.Helper()
	s.Eventually("the queue has all tickets", func() error {
		for _, q := range s.queues(t) {
			if q.Prefix == "a_" {
				queue = q
			}
		}
		return wantTickets(queue, n)
	})
	return queue
}

func fromJSON(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("reading JSON: %v\n%s", err, text)
	}
}
