package test

import (
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// TestFaults runs three Caddys and three members of etcd, each on a machine of
// its own. It kills them, stops them and cuts them off, and checks behind the
// queue whether two were ever inside at once.
func TestFaults(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	s := newSite(t, ttl)
	stop := s.visitAll(3)
	rounds := 1
	if *testlease.Long {
		rounds = 5
	}
	s.oracle.catchUp(t)
	for range rounds {
		s.killHolder()
		s.stopHolder()
		s.cutHolder()
		s.killLeader()
		s.cutLeader()
		s.freezeFollowers()
		s.loseMajority()
	}
	stop()
	o := s.oracle
	if err := o.Judge(); err != nil {
		t.Error(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("%d visits; overlaps without a check of the token: %d, all with a Caddy that was stopped or killed: %t",
		o.entries, o.overlaps, o.overlaps == o.forcedOverlaps())
	if o.overlaps != o.forcedOverlaps() {
		t.Error("two were inside though no process was stopped")
	}
	if o.entries < 100 {
		t.Errorf("only %d visits: the test shows nothing", o.entries)
	}
}

// catchUp waits until the site works.
func (o *oracle) catchUp(t *testing.T) {
	t.Helper()
	wait.Until(t, "visitors come", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.entries > 20
	})
}

// forcedOverlaps counts the entries beside a holder whose Caddy was stopped or
// killed. The caller holds the lock.
func (o *oracle) forcedOverlaps() (n int) {
	for _, s := range o.visits {
		for _, other := range o.visits {
			if other != s && other.forced > 0 && other.Came < s.Came && s.Came < other.left {
				n++
				break
			}
		}
	}
	return n
}

// holder catches the visit inside, and returns it and its Caddy.
func (s *site) holder() (*hold, *caddy) {
	visit := s.oracle.catch()
	return visit, s.caddys[visit.Client*len(s.caddys)/(3*len(s.caddys))]
}

// recovered logs how long nobody new entered after a fault, and fails the test
// if that was longer than promised.
func (s *site) recovered(fault string, since, promised time.Duration) {
	took := s.oracle.next(since) - since
	s.t.Logf("%-45s next entry after %6.2f s (at most %.0f s)", fault, took.Seconds(), promised.Seconds())
	if took > promised {
		s.t.Errorf("%s: the next one entered after %s; promised: at most %s", fault, took, promised)
	}
}

// stalled waits until visitors come again after a fault of etcd, and logs the
// longest time without an entry.
func (s *site) stalled(fault string, since time.Duration) {
	s.works("after " + fault)
	took := s.oracle.longestGap(since)
	s.t.Logf("%-45s longest time without an entry %.2f s (at most %.0f s)", fault, took.Seconds(), (s.ttl + 2*time.Second).Seconds())
	if took > s.ttl+2*time.Second {
		s.t.Errorf("%s: nobody entered for %s", fault, took)
	}
}

func (s *site) killHolder() {
	visit, caddy := s.holder()
	s.oracle.force(visit)
	caddy.Kill()
	s.recovered("kill -9 of the Caddy inside:", visit.forced, s.ttl+2*time.Second)
	caddy.start()
}

// stopHolder stops the Caddy inside for longer than its lease. The request
// behind it goes on meanwhile.
func (s *site) stopHolder() {
	visit, caddy := s.holder()
	s.oracle.force(visit)
	caddy.Signal(syscall.SIGSTOP)
	s.recovered("SIGSTOP of the Caddy inside:", visit.forced, s.ttl+2*time.Second)
	time.Sleep(time.Second) // others work while the stopped one's request does, too
	caddy.Signal(syscall.SIGCONT)
	s.works("after SIGCONT")
}

// cutHolder cuts the Caddy inside off from etcd. It keeps running, so it must
// end its turn in time.
func (s *site) cutHolder() {
	_, caddy := s.holder()
	since := s.oracle.Now()
	caddy.cut(s.t)
	s.recovered("the Caddy inside cut off from etcd:", since, s.ttl+2*time.Second)
	caddy.heal(s.t)
	s.works("after the link is back")
}

// killLeader kills the member that leads. No lease should be lost.
func (s *site) killLeader() {
	leader := s.leader()
	since := s.oracle.Now()
	leader.Kill()
	s.stalled("kill -9 of etcd's leader:", since)
	_ = s.leader()
	s.works("with two members")
	leader.Run()
}

// cutLeader cuts the member that leads off from all others.
func (s *site) cutLeader() {
	leader := s.leader()
	since := s.oracle.Now()
	leader.cut(s.t)
	s.stalled("etcd's leader cut off:", since)
	s.works("with two members")
	leader.heal(s.t)
}

// freezeFollowers stops each member that does not lead, for longer than a lease. It says nothing, but its
// kernel still acknowledges data. Bug: everything stood still for 13 seconds, leases were lost, and a
// waiter was refused as evicted, which it was not.
func (s *site) freezeFollowers() {
	refused := s.refused.Load()
	for _, m := range s.members {
		if m == s.leader() {
			continue
		}
		since := s.oracle.Now()
		m.Signal(syscall.SIGSTOP)
		time.Sleep(s.ttl + 3*time.Second)
		m.Signal(syscall.SIGCONT)
		s.stalled("a member frozen:", since)
	}
	if n := s.refused.Load() - refused; n > 0 {
		s.t.Errorf("a member frozen: %d requests were refused", n)
	}
}

// loseMajority kills two of three members. Nobody may enter on the word of a
// single member, and the holder must stop.
func (s *site) loseMajority() {
	visit, _ := s.holder()
	since := s.oracle.Now()
	for _, member := range s.members[:2] {
		member.Kill()
	}
	wait.Until(s.t, "the request inside is cancelled", func() bool { return s.oracle.gone(visit) })
	s.t.Logf("%-45s the request inside was cancelled after %.2f s", "two of three members killed:", (s.oracle.Now() - since).Seconds())
	time.Sleep(s.ttl)
	if late := s.oracle.after(since + s.ttl); late > 0 {
		s.t.Errorf("%d entered without a majority of etcd's members", late)
	}
	since = s.oracle.Now()
	for _, member := range s.members[:2] {
		member.Run()
	}
	s.recovered("the members are back:", since, s.ttl+10*time.Second)
	s.works("after the members are back")
}

func (s *site) entries() int {
	s.oracle.mu.Lock()
	defer s.oracle.mu.Unlock()
	return s.oracle.entries
}

// works waits until visitors come again.
func (s *site) works(when string) {
	before := s.entries()
	wait.Until(s.t, "visitors come "+when, func() bool { return s.entries() > before+50 })
}
