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
	"strings"
	"testing"
	"time"

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
	must(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	dir, err := os.MkdirTemp("", "ord") // a path without the commas that a test's name may have
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, block := range map[string]*pem.Block{
		"private": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		"public":  {Type: "PUBLIC KEY", Bytes: public},
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return fmt.Sprintf("jwt,pub-key=%s,priv-key=%s,sign-method=RS256,ttl=2s", filepath.Join(dir, "public"), filepath.Join(dir, "private"))
}

// visited has visitors of both engines come until the result is called, which fails the
// test if any was refused.
func visited(t *testing.T, engines ...*engine) (check func(when string)) {
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
	holder, waiting, evicted := enter(t, here, "kept"), join(t, there, "kept"), join(t, there, "kept")
	evict(t, here, queueOf(t, here, "kept"), 2)
	wantRefusal(t, (<-evicted).err, serializer.ReasonEvicted, serializer.ErrEvicted)
	for range 2 {
		time.Sleep(4 * time.Second) // longer than a token lives without use
		visited(t, here, there)("after a pause")
	}
	holder.Leave()
	(<-waiting).leave(t)

	for when, steps := range map[string][]change{
		"after another password, and the old one back": {password("other"), password("secret")},
		"after authentication was off, and on again": {
			func(ctx context.Context, c *clientv3.Client) error { return second(c.AuthDisable(ctx)) },
			func(ctx context.Context, c *clientv3.Client) error { return second(c.AuthEnable(ctx)) },
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

// A process whose user may no longer write, or that has no login when one is demanded,
// cannot delete its tickets. Its lease ends, and the next one enters. Bug: it renewed its
// lease all the same, and so blocked all other machines.
func TestRightToWriteLost(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	orderly := etcd.Options{Username: "orderly", Password: "secret", TTL: ttl}
	for name, c := range map[string]struct {
		here, there etcd.Options
		lose, back  change
		says        string
	}{
		"no right to write": {orderly, etcd.Options{Username: "root", Password: "root", TTL: ttl},
			grant(false), grant(true), "right"},
		"no login": {etcd.Options{TTL: ttl}, orderly, demandingLogin,
			func(ctx context.Context, c *clientv3.Client) error { return second(c.AuthDisable(ctx)) }, "username"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startStandalone(t, "etcd", "--bcrypt-cost", "4")
			o := &operator{t, []string{m.URL}}
			if c.here.Username != "" {
				o.do(demandingLogin)
			}
			here, there := open(t, c.here, m.URL), open(t, c.there, m.URL)
			holder, next := enter(t, here, "a_"), join(t, there, "a_")
			o.do(c.lose)
			left, ended := time.Now(), make(chan time.Duration, 1)
			go func() { ended <- o.firstGone("a_", left) }()
			holder.Leave()
			(<-next).leave(t)
			// A busy machine may keep etcd from ending the lease in time.
			if took, promised := time.Since(left), max(ttl, <-ended)+2*time.Second; took > promised {
				t.Errorf("the next one entered after %s; promised: at most %s", took, promised)
			}
			wait.Until(t, "the error says "+c.says, func() bool {
				_, err := here.Enter(t.Context(), arrivalFor(100*time.Millisecond, "a_"))
				return serializer.ReasonOf(err) == serializer.ReasonStorage && strings.Contains(err.Error(), c.says)
			})
			o.do(c.back)
			for _, e := range []*engine{here, there} {
				enterSoon(t, e, "a_")
			}
		})
	}
}
