package test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// signingKey writes a pair of keys, and returns etcd's setting for tokens that
// are signed with them and live for two seconds.
func signingKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	testlease.Must(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	testlease.Must(t, err)
	dir, err := os.MkdirTemp("", "ord") // a path without the commas that a test's name may have
	testlease.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, block := range map[string]*pem.Block{
		"private": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		"public":  {Type: "PUBLIC KEY", Bytes: public},
	} {
		testlease.Must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return fmt.Sprintf("jwt,pub-key=%s,priv-key=%s,sign-method=RS256,ttl=2s", filepath.Join(dir, "public"), filepath.Join(dir, "private"))
}

// visited has visitors of both engines come until the result is called, which fails the
// test if any was refused.
func visited(t *testing.T, engines ...*testlease.Engine) (check func(when string)) {
	all := new(crowd)
	for _, e := range engines {
		all.comes(e, 2, 0, 0, 20*time.Millisecond)
	}
	return func(when string) {
		t.Helper()
		all.more(t, 20, when)
		all.end()
		if len(all.refused) > 0 {
			t.Errorf("%s: %d refused beside %d, the first: %v", when, len(all.refused), len(all.entries), all.refused[0])
		}
	}
}

// Tokens of etcd's authentication expire: after a time without use, when the
// password or any right changes, and when authentication is switched off. Bug:
// new watches used a stream that kept its old token. From then on, nine of ten
// requests timed out.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"simple", "signed"} {
		tokens := func(t *testing.T) string {
			if kind == "signed" {
				return signingKey(t)
			}
			return kind
		}
		t.Run("etcd 3.4, "+kind, func(t *testing.T) {
			t.Parallel()
			m := startStandalone(t, "etcd", "--auth-token", tokens(t), "--auth-token-ttl", "2", "--bcrypt-cost", "4")
			testTokensEnd(t, demandLogin(t, m.URL))
		})
		t.Run("etcd 3.7, "+kind, func(t *testing.T) {
			t.Parallel()
			m := testetcd.New(t)
			m.Config.AuthToken, m.Config.AuthTokenTTL, m.Config.BcryptCost = tokens(t), 2, 4
			m.Start(t)
			testTokensEnd(t, demandLogin(t, m.URL))
		})
	}
}

func testTokensEnd(t *testing.T, o *operator) {
	options := etcd.Options{Username: "orderly", Password: "secret", TTL: 10 * time.Second}
	here, there := open(t, options, o.endpoints...), open(t, options, o.endpoints...)
	visited(t, here, there)("at first")

	// A watch that never ends keeps its stream open.
	holder, waiting, evicted := testlease.EnterAs(t, here, arrival("kept")).Turn, testlease.JoinAs(t, there, arrival("kept")), testlease.JoinAs(t, there, arrival("kept"))
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
