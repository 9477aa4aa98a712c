package test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// A refused login costs etcd a tenth of a second of CPU time. Bug: after each
// attempt at a lease, a goroutine tried ten times a second to give back a lease
// that was never made. It logged in each time. So one Caddy with a wrong
// password kept a processor of etcd busy.
func TestWrongPasswordIsNoLoad(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Debian)
	demandLogin(t, m.URL)
	openAlone(t, etcd.Options{Username: "orderly", Password: "wrong"}, m.URL)
	logins := func() float64 { return m.Metric("grpc_server_handled_total", `grpc_method="Authenticate"`) }
	time.Sleep(2 * time.Second)
	before := logins()
	time.Sleep(4 * time.Second)
	if n := logins() - before; n > 4 || before == 0 {
		t.Errorf("%.0f logins in four seconds, after %.0f", n, before)
	}
}

// Bug: while no member answered, each attempt at a lease left a goroutine
// behind, for as long as the lease would have lived. No other test runs beside
// this one.
func TestUnreachableForLong(t *testing.T) {
	before := goroutines()
	openAlone(t, etcd.Options{TTL: time.Hour}, testetcd.FreePlace(t).URL)
	time.Sleep(2 * time.Second)
	first := goroutines()
	wait := 6 * time.Second
	if *testlease.Long {
		wait = time.Minute
	}
	time.Sleep(wait)
	if last := goroutines(); last > first+3 {
		t.Errorf("%d goroutines of the engine, %d after two seconds, %d %s later", before, first, last, wait)
	}
}

// goroutines counts those in which the engine's code runs.
func goroutines() (n int) {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "caddy-orderly/serializer/etcd.") {
			n++
		}
	}
	return n
}

// Bug: whenever a token had expired, new watches used a new stream, and the
// previous one stayed open although nothing was watched there any more.
func TestStreamsOfEndedTokens(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Debian, "--auth-token-ttl", "1")
	demandLogin(t, m.URL)
	e := open(t, etcd.Options{Username: "orderly", Password: "secret"}, m.URL)
	rounds := 3
	if *testlease.Long {
		rounds = 6
	}
	var counts []float64
	for range rounds {
		time.Sleep(3 * time.Second) // longer than a token lives without use
		testlease.Enter(t, e).Turn.Leave()
		counts = append(counts, m.Metric("etcd_debugging_mvcc_watch_stream_total ", ""))
	}
	t.Log("streams:", fmt.Sprint(counts))
	if last := counts[len(counts)-1]; last > counts[0]+1 || counts[0] == 0 {
		t.Errorf("streams at each round: %v", counts)
	}
}
