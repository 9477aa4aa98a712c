package test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
		before := clients.Len()
		wait.Until(t, "clients come "+when, func() bool { return clients.Len() > before+20 })
		if refused := clients.End(); len(refused) > 0 {
			t.Errorf("%s: %d refused beside %d, the first: %v", when, len(refused), clients.Len(), refused[0])
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
