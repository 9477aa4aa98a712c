package test

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// loseAnswer starts an arrival over a link. etcd makes its ticket, so that there are that
// many, and the answer is lost.
func loseAnswer(t *testing.T, e *serializer.Engine, link link, c *clientv3.Client, tickets int, meanwhile func()) *testlease.Caller {
	t.Helper()
	link.Hold(true)
	done := testlease.Arrive(e, arrival("a_"))
	wait.Until(t, "the ticket exists", func() bool { return len(ticketsOf(t, c, "")) == tickets })
	meanwhile()
	link.Cut()
	link.Hold(false)
	return done
}

// The answer to a deletion and a ticket is lost after etcd has carried out both. The
// next one enters, the ticket is not taken twice, and no key stays.
func TestLostAnswerToDeletionAndTicket(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c, link := m.Client(t), startLink(t, m.URL)
	here, there := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	turn := testlease.Enter(t, here).Turn
	waiting := testlease.Join(t, there)
	link.Hold(true)
	turn.Leave()
	last := loseAnswer(t, here, link, c, 2, func() { waiting.Wait(t) })
	waiting.Turn.Leave()
	testlease.WantGreater(t, last.Wait(t).Token(), waiting.Turn.Token())
	last.Turn.Leave()
	waitUntilEmpty(t, c)
}

// Bug: a member was silent, and another one made the ticket. When the silent one woke
// up, it made the ticket again, after its use and deletion. Nobody looked for it,
// because the request had an answer, and other machines waited for it until their
// timeout.
func TestStrayOfSilentMember(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Own)
	c := m.Client(t)
	links := []link{startLink(t, m.URL), startLink(t, m.URL)}
	here := open(t, etcd.Options{TTL: time.Minute}, links[0].url(), links[1].url())
	there := open(t, etcd.Options{}, m.URL)
	for _, link := range links { // one of them is in use
		testlease.Enter(t, here).Turn.Leave()
		waitUntilEmpty(t, c)
		link.Part(true)
		turn := testlease.Enter(t, here).Turn
		stray := ticketsOf(t, c, "a_/")[0]
		turn.Leave()
		waitUntilEmpty(t, c)
		link.Part(false)
		stray.putAgain(t, c, "")
		testlease.Enter(t, there).Turn.Leave()
		waitUntilEmpty(t, c)
	}
}
