package test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// loseAnswer starts an arrival over a link. etcd makes its ticket, so that there are that
// many, and the answer is lost.
func loseAnswer(t *testing.T, e *engine, link *relay, c *clientv3.Client, tickets int, meanwhile func()) <-chan result {
	t.Helper()
	link.hold(true)
	done := start(e, "a_")
	wait.Until(t, "the ticket exists", func() bool { return len(ticketsOf(t, c, "")) == tickets })
	meanwhile()
	link.cut()
	link.hold(false)
	return done
}

// A request whose answer is lost is sent again, and must not take a second ticket: nobody
// would ever give it back.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c, link := m.Client(t), startRelay(t, m.URL)
	e := open(t, etcd.Options{TTL: time.Minute}, link.url())
	enter(t, e, "a_").Leave()
	waitUntilEmpty(t, c)
	history := c.Watch(context.Background(), etcd.DefaultNamespace+"a_/", clientv3.WithPrefix())
	for range 5 {
		r := <-loseAnswer(t, e, link, c, 1, func() {})
		must(t, r.err)
		if r.turn.Position() != 0 {
			t.Errorf("position %d: it has waited for itself", r.turn.Position())
		}
		r.turn.Leave()
		waitUntilEmpty(t, c)
	}
	puts := 0
	quiet := time.After(time.Second) // longer than any request is in flight
	for open := true; open; {
		select {
		case more := <-history:
			for _, event := range more.Events {
				if event.IsCreate() {
					puts++
				}
			}
		case <-quiet:
			open = false
		}
	}
	// A repeated request in flight may make a ticket again, which is deleted at once.
	if puts > 6 {
		t.Errorf("%d tickets were made for 5 arrivals", puts)
	}
}

// The answer to a deletion and a ticket is lost after etcd has carried out both. The
// next one enters, the ticket is not taken twice, and no key stays.
func TestLostAnswerToDeletionAndTicket(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c, link := m.Client(t), startRelay(t, m.URL)
	here, there := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	turn := enter(t, here, "a_")
	waiting := join(t, there, "a_")
	link.hold(true)
	turn.Leave()
	var next result
	done := loseAnswer(t, here, link, c, 2, func() { next = <-waiting })
	next.leave(t)
	last := <-done
	must(t, last.err)
	if last.turn.Token() <= next.turn.Token() {
		t.Errorf("token %d after %d", last.turn.Token(), next.turn.Token())
	}
	last.turn.Leave()
	waitUntilEmpty(t, c)
}

// Bug: a member was silent, and another one made the ticket. When the silent one woke
// up, it made the ticket again, after its use and deletion. Nobody looked for it,
// because the request had an answer, and other machines waited for it until their
// timeout.
func TestStrayOfSilentMember(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t)
	c := m.Client(t)
	links := []*relay{startRelay(t, m.URL), startRelay(t, m.URL)}
	here := open(t, etcd.Options{TTL: time.Minute}, links[0].url(), links[1].url())
	there := open(t, etcd.Options{}, m.URL)
	for _, link := range links { // one of them is in use
		enter(t, here, "a_").Leave()
		waitUntilEmpty(t, c)
		link.part(true)
		turn := enter(t, here, "a_")
		stray := ticketsOf(t, c, "a_/")[0]
		turn.Leave()
		waitUntilEmpty(t, c)
		link.part(false)
		stray.putAgain(t, c, "")
		enter(t, there, "a_").Leave()
		waitUntilEmpty(t, c)
	}
}
