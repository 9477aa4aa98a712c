package test

import (
	"context"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// Bug: a caller that left and came back at once sent two requests, often the one
// for its new ticket first. etcd commits in rounds, so the next process waited for
// two of them.
func TestLeavingAndComingAgainIsOneWrite(t *testing.T) {
	m := testetcd.Start(t)
	c, e := m.Client(t), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	revision := func() int64 {
		answer, err := c.Get(context.Background(), "x")
		if err != nil {
			t.Fatal(err)
		}
		return answer.Header.Revision
	}
	const turns = 200
	turn := enter(t, e, arrival("a_"))
	before := revision()
	for range turns {
		turn.Leave()
		turn = enter(t, e, arrival("a_"))
	}
	// A caller that the system stops between leaving and coming back sends
	// two.
	if writes := revision() - before; writes > turns*3/2 {
		t.Errorf("%d writes for %d turns", writes, turns)
	}
	turn.Leave()
	waitUntilEmpty(t, c)
}

// etcd may refuse what goes along with a ticket. Neither the ticket nor the
// deletion is lost then.
func TestTicketWithDeletionRefused(t *testing.T) {
	m := testetcd.New(t)
	m.Config.MaxTxnOps = 2 // enough for the ticket or for the deletion
	m.Start(t)
	here, there := open(t, etcd.Options{}, m.URL), open(t, etcd.Options{}, m.URL)
	var all crowd
	for _, e := range []*engine{here, there, here} {
		all.comes(t, e, 1, 10, 0)
	}
	all.wantOrder(t, 30)
	waitUntilEmpty(t, m.Client(t))
}

// The answer to a deletion and a ticket is lost after etcd has carried out both. The
// next one enters, the ticket is not taken twice, and no key stays.
func TestLostAnswerToDeletionAndTicket(t *testing.T) {
	m := testetcd.Start(t)
	c, link := m.Client(t), startRelay(t, m.URL)
	here, there := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	turn := enter(t, here, arrival("a_"))
	next := join(t, there, arrival("a_"))
	link.hold(true)
	turn.Leave()
	done := make(chan result, 1)
	go func() {
		turn, err := here.Enter(context.Background(), arrival("a_"))
		done <- result{turn, err}
	}()
	r := <-next
	if r.err != nil {
		t.Fatal(r.err)
	}
	wait.Until(t, "the ticket exists", func() bool { return len(keysOf(t, c)) == 2 })
	link.cut()
	link.hold(false)
	r.turn.Leave()
	last := <-done
	if last.err != nil {
		t.Fatal(last.err)
	}
	if last.turn.Token() <= r.turn.Token() {
		t.Errorf("token %d after %d", last.turn.Token(), r.turn.Token())
	}
	last.turn.Leave()
	waitUntilEmpty(t, c)
}
