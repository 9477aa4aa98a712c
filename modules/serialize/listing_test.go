package serialize

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

type requester struct{}

func (requester) Request() serializer.Request { return serializer.Request{Path: "/report"} }

// elsewhere is a store that keeps the same queues as another one, as those of one etcd
// namespace do. It cannot evict the tickets of the other one.
type elsewhere struct{ remote }

func (elsewhere) Evict(context.Context, *serializer.Ticket) error { return serializer.ErrNoTicket }

// Bug: engines that differ in a setting such as ttl, but keep the same queues,
// listed each queue twice. A ticket of the second engine could not be evicted.
func TestEnginesOfOneSpaceListQueuesOnce(t *testing.T) {
	const space = "test:space"
	ours := share(t, "test:2", inMemory(space))
	revoked := make(chan error, 1)
	turn, err := ours.Enter(t.Context(), serializer.Arrival{Queue: "a_", Requester: requester{}, Revoke: func(err error) { revoked <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Leave()
	seen := &serializer.Ticket{Queue: "a_", Number: turn.Token(), Arrived: time.Now(), Owner: &serializer.Owner{Name: "ours", Alive: true}}
	seen.Rule = serializer.Rule{Limit: 1}
	for _, e := range []*sharedEngine{
		share(t, "test:1", elsewhere{remote{inMemory(space), []*serializer.Ticket{seen}}}), ours, share(t, "test:3", failing{inMemory(space)}),
	} {
		e.space = space
		configure(t, member{engine: e, queue: "a_", limit: 1})
	}

	queues := allQueues(t.Context())
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
	if status, text := ask(t, queueapi.Path+"/test%3Aspace%2Fa_"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if _, err := evictTicket(t.Context(), space+"/a_", strconv.FormatUint(turn.Token(), 10), false); err != nil {
		t.Fatal(err)
	}
	if err := <-revoked; !errors.Is(err, serializer.ErrEvicted) {
		t.Errorf("revoked with %v", err)
	}
}
