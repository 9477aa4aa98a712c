package test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// signed is etcd's setting for tokens that are signed, and live for two seconds.
func signed(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ord") // a path without the commas that a test's name may have
	testlease.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	key := filepath.Join(dir, "key")
	testlease.Must(t, os.WriteFile(key, []byte(rand.Text()), 0o600))
	return fmt.Sprintf("jwt,priv-key=%s,sign-method=HS256,ttl=2s", key)
}

// visited has clients of both engines come until the result is called, which fails the test if any was
// refused.
func visited(t *testing.T, engines ...*serializer.Engine) (check func(when string)) {
	clients := testlease.Come("a_", 2, engines...)
	return func(when string) {
		t.Helper()
		before := clients.Turns()
		wait.Until(t, "clients come "+when, func() bool { return clients.Turns() > before+20 })
		if clients.End(); len(clients.Refused) > 0 {
			t.Errorf("%s: %d refused beside %d, the first: %v", when, len(clients.Refused), clients.Turns(), clients.Refused[0])
		}
	}
}

// Tokens of etcd's authentication expire: after a time without use, when the
// password or any right changes, and when authentication is switched off. Bug:
// new watches used a stream that kept its old token. From then on, nine of ten
// requests timed out.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	for name, program := range programs {
		for kind, tokens := range map[string]string{"simple": "simple", "signed": signed(t)} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				m := testetcd.Start(t, program, "--auth-token", tokens, "--auth-token-ttl", "2")
				testTokensEnd(t, demandLogin(t, m.URL))
			})
		}
	}
}

func testTokensEnd(t *testing.T, o *operator) {
	options := etcd.Options{Username: "orderly", Password: "secret", TTL: 10 * time.Second}
	here, there := open(t, options, o.endpoints...), open(t, options, o.endpoints...)
	visited(t, here, there)("at first")

	// A watch that never ends keeps its stream open.
	holder, waiting, evicted := testlease.Enter(t, here, arrival("kept")).Turn, testlease.Join(t, there, arrival("kept")), testlease.Join(t, there, arrival("kept"))
	evict(t, here, queueOf(t, here, "kept"), 2)
	wantRefusal(t, evicted.End(t), serializer.ReasonEvicted, serializer.ErrEvicted)
	for range 2 {
		time.Sleep(4 * time.Second) // longer than a token lives without use
		visited(t, here, there)("after a pause")
	}
	holder.Leave()
	waiting.Wait(t).Leave()

	for when, steps := range map[string][]change{
		"after another password, and the old one back": {password("other"), password("secret")},
		"after authentication was off, and on again": {
			func(ctx context.Context, c *clientv3.Client) error { return testlease.Second(c.AuthDisable(ctx)) },
			func(ctx context.Context, c *clientv3.Client) error { return testlease.Second(c.AuthEnable(ctx)) },
		},
		"after rights were lost, and given again": {grant(false), grant(true)},
	} {
		check := visited(t, here, there)
		for _, step := range steps {
			o.do(step)
			time.Sleep(time.Second)
		}
		check(when)
	}
	wait.Until(t, "the queue is empty", func() bool { return len(queueOf(t, here, "a_").Tickets) == 0 })
}

// A refused login costs etcd a tenth of a second of CPU time. Bug: after each
// attempt at a lease, a goroutine tried ten times a second to give back a lease
// that was never made. It logged in each time. So one Caddy with a wrong
// password kept a processor of etcd busy.
func TestWrongPasswordIsNoLoad(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Debian)
	demandLogin(t, m.URL)
	openAlone(t, etcd.Options{Username: "orderly", Password: "wrong"}, m.URL)
	logins := func() float64 { return metric(m, "grpc_server_handled_total", `grpc_method="Authenticate"`) }
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
	openAlone(t, etcd.Options{TTL: time.Hour}, "http://"+testprocess.FreeAddr(t))
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
		counts = append(counts, metric(m, "etcd_debugging_mvcc_watch_stream_total ", ""))
	}
	t.Log("streams:", fmt.Sprint(counts))
	if last := counts[len(counts)-1]; last > counts[0]+1 || counts[0] == 0 {
		t.Errorf("streams at each round: %v", counts)
	}
}
