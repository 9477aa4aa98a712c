package serialize

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/serializer"
)

type requester struct{}

func (requester) Request() serializer.Request {
	return serializer.Request{Method: "GET", Path: "/report"}
}

// elsewhere is a store that keeps the same queues as another one, as those of one etcd
// namespace do. It asks the other one to evict its tickets.
type elsewhere struct {
	remote
	owner *engines.Shared
}

func (s elsewhere) Evict(ctx context.Context, t *serializer.Ticket) error {
	return s.owner.Evict(ctx, t.Queue, t.Number)
}

// Bug: engines that differ in a setting such as ttl, but keep the same queues,
// listed each queue twice. A ticket of the second engine could not be evicted.
func TestEnginesOfOneSpaceListQueuesOnce(t *testing.T) {
	const space = "test:space"
	ours := share(t, "test:2", inMemory(space))
	revoked := make(chan error, 1)
	turn, err := ours.Enter(t.Context(), serializer.Arrival{Queue: "a_", Requester: requester{}, Revoke: func(err error) { revoked <- err }})
	must(t, err)
	defer turn.Leave()
	seen := &serializer.Ticket{Queue: "a_", Number: turn.Token(), Arrived: time.Now(), Owner: &serializer.Owner{Name: "ours", Alive: true}}
	seen.Rule = serializer.Rule{Limit: 1}
	for _, e := range []*engines.Shared{
		share(t, "test:1", elsewhere{remote{inMemory(space), []*serializer.Ticket{seen}}, ours}), ours, share(t, "test:3", failing{inMemory(space)}),
	} {
		e.Space = space
		configure(t, e, "a_")
	}

	queues := queuesOf(t.Context(), nil)
	if len(queues) != 1 {
		t.Fatalf("%d queues, want 1: %+v", len(queues), queues)
	}
	q := queues[0]
	if q.Inside != 1 || q.Waiting != 0 || q.Limit != 1 || len(q.Tickets) != 1 || q.Error != "" {
		t.Errorf("listed as %+v", q)
	}
	if q.Tickets[0].Request == nil || q.Tickets[0].Request.Path != "/report" {
		t.Errorf("the ticket is listed without its request: %+v", q.Tickets[0])
	}
	token := strconv.FormatUint(turn.Token(), 10)
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/test%3Aspace%2Fa_", 200, `"/report"`},
		{"DELETE", "/test%3Aspace%2Fa_/" + token, 200, "only when its handlers return"},
	} {
		if status, text := ask(t, c.method, c.path); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %d %s; expected %d with %s", c.method, c.path, status, text, c.status, c.says)
		}
	}
	if err := <-revoked; !errors.Is(err, serializer.ErrEvicted) {
		t.Errorf("revoked with %v", err)
	}
}

// Bug: a list of 20,000 took 2.3 seconds: each ticket was looked for among all.
func TestLongQueueIsListedSoon(t *testing.T) {
	shared := share(t, "test:long", inMemory("/long"))
	for range 20_000 {
		shared.Join(serializer.Arrival{Queue: "a_"}, func(serializer.Turn, error) {})
	}
	begun := time.Now()
	listQueues(t.Context(), shared)
	alone := time.Since(begun)
	if queuesOf(t.Context(), nil); time.Since(begun) > 10*alone+100*time.Millisecond {
		t.Errorf("all lists took %v, and the only one %v", time.Since(begun)-alone, alone)
	}
}

// hostile is a request of a client that wants to harm the people who list it.
type hostile struct{}

func (hostile) Request() serializer.Request {
	return serializer.Request{Method: "GET\x1b[2J", Host: "\u009b31m" + strings.Repeat("h", 9000), Path: "/" + strings.Repeat("ä\u202e", 9000)}
}

// Bug: a list had paths of any length, and characters that control a terminal.
func TestListsAreHarmless(t *testing.T) {
	shared := share(t, "test:hostile", inMemory("/hostile"))
	shared.Join(serializer.Arrival{Queue: "a_", Requester: hostile{}}, func(turn serializer.Turn, _ error) { <-t.Context().Done(); turn.Leave() })
	r := listQueues(t.Context(), shared)[0].Tickets[0].Request
	for _, text := range []string{r.Method, r.Host, r.Path} {
		if n := utf8.RuneCountInString(text); n > 256 || strings.ContainsAny(text, "\x1b\u009b\u202e") {
			t.Errorf("listed with %d characters: %q", n, text)
		}
	}
	if n := utf8.RuneCountInString(r.Path); n != 256 || !strings.HasSuffix(r.Path, "…") {
		t.Errorf("the path has %d characters; expected the first 255 and an ellipsis", n)
	}
}
