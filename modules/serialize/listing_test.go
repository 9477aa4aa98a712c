package serialize

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// elsewhere is an engine that keeps the same queues as another one, as engines of
// one etcd namespace do. It knows less of the tickets that it does not serve, and
// evicts none of them.
type elsewhere struct{ serializer.Engine }

func (e elsewhere) Queues(ctx context.Context) ([]serializer.QueueState, error) {
	states, err := e.Engine.Queues(ctx)
	for _, state := range states {
		for i := range state.Tickets {
			state.Tickets[i].Requester = nil
		}
	}
	return states, err
}

func (elsewhere) Evict(context.Context, string, uint64) error { return serializer.ErrNoTicket }

type requester struct{}

func (requester) Request() serializer.Request { return serializer.Request{Path: "/report"} }

// Bug: engines that differ in a setting such as ttl, but keep the same queues,
// listed each queue twice. A ticket of the second engine could not be evicted.
func TestEnginesOfOneSpaceListQueuesOnce(t *testing.T) {
	const space = "test:space"
	ours := serializer.NewMemory(serializer.MemoryOptions{Path: space})
	for _, c := range []struct {
		key    string
		engine serializer.Engine
	}{{"test:1", elsewhere{ours}}, {"test:2", ours}, {"test:3", failingHere{}}} {
		e := share(t, c.key, c.engine)
		e.space = space
		e.configure(configuredQueue{name: "a_", limit: 1}, 1)
	}
	revoked := make(chan error, 1)
	turn, err := ours.Enter(t.Context(), serializer.Arrival{Queue: "a_", Requester: requester{}, Revoke: func(err error) { revoked <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Leave()

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
	if _, err := evictTicket(t.Context(), space+"/a_", strconv.FormatUint(turn.Token(), 10)); err != nil {
		t.Fatal(err)
	}
	if err := <-revoked; !errors.Is(err, serializer.ErrEvicted) {
		t.Errorf("revoked with %v", err)
	}
}

// failingHere is an engine of the same space whose queues cannot be read.
type failingHere struct{ failingEngine }

func (failingHere) Path() string { return "test:space" }
