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
	"strconv"
	"sync"
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
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ord") // a path without the commas that a test's name may have
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, block := range map[string]*pem.Block{
		"private": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		"public":  {Type: "PUBLIC KEY", Bytes: public},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("jwt,pub-key=%s,priv-key=%s,sign-method=RS256,ttl=2s", filepath.Join(dir, "public"), filepath.Join(dir, "private"))
}

// visitors enter and leave a queue through two engines until they are stopped,
// and record refusals.
type visitors struct {
	stop  context.CancelFunc
	group sync.WaitGroup
	mu    sync.Mutex
	in    int
	out   []error
}

func startVisitors(engines ...*engine) *visitors {
	ctx, cancel := context.WithCancel(context.Background())
	v := &visitors{stop: cancel}
	for _, e := range engines {
		for range 2 {
			v.group.Go(func() {
				for ctx.Err() == nil {
					v.visit(e)
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
	}
	return v
}

func (v *visitors) visit(e *engine) {
	a := arrival("a_")
	a.Timeout = time.Minute
	turn, err := e.Enter(context.Background(), a)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.out = append(v.out, err)
		return
	}
	v.in++
	turn.Leave()
}

func (v *visitors) entered() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.in
}

// check ends the visits, after some more of them, and fails the test if any was
// refused.
func (v *visitors) check(t *testing.T, when string) {
	t.Helper()
	before := v.entered()
	wait.Until(t, "visitors come "+when, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.in > before+20 || len(v.out) > 0
	})
	v.stop()
	v.group.Wait()
	if len(v.out) > 0 {
		t.Errorf("%s: %d of %d refused, the first: %v", when, len(v.out), len(v.out)+v.in, v.out[0])
	}
}

// Tokens of etcd's authentication expire: after a time without use, when the
// password or any right changes, and when authentication is switched off. Bug:
// new watches used a stream that kept its old token. From then on, nine of ten
// requests timed out.
func TestTokensEnd(t *testing.T) {
	t.Parallel() // it mostly waits
	servers := map[string]func(*testing.T, string) *testetcd.Member{
		"etcd 3.4": func(t *testing.T, tokens string) *testetcd.Member {
			return startStandalone(t, "--auth-token", tokens, "--auth-token-ttl", "2", "--bcrypt-cost", "4").Member
		},
		"etcd 3.7": func(t *testing.T, tokens string) *testetcd.Member {
			m := testetcd.New(t)
			m.Config.AuthToken, m.Config.AuthTokenTTL, m.Config.BcryptCost = tokens, 2, 4
			m.Start(t)
			return m
		},
	}
	for server, start := range servers {
		for _, kind := range []string{"simple", "signed"} {
			t.Run(server+", "+kind, func(t *testing.T) {
				t.Parallel()
				tokens := kind
				if kind == "signed" {
					tokens = signingKey(t)
				}
				testTokensEnd(t, demandLogin(t, start(t, tokens).URL))
			})
		}
	}
}

func testTokensEnd(t *testing.T, o *operator) {
	options := etcd.Options{Username: "orderly", Password: "secret", TTL: 10 * time.Second}
	here, there := open(t, options, o.endpoints...), open(t, options, o.endpoints...)
	startVisitors(here, there).check(t, "at first")

	// A watch that never ends keeps its stream open.
	holder := enter(t, here, arrival("kept"))
	waiting := join(t, there, arrival("kept"))
	for range 2 {
		time.Sleep(4 * time.Second) // longer than a token lives without use
		startVisitors(here, there).check(t, "after a pause")
	}
	holder.Leave()
	(<-waiting).leave(t)

	type step struct {
		name   string
		change func(context.Context, *clientv3.Client) error
	}
	password := func(text string) func(context.Context, *clientv3.Client) error {
		return func(ctx context.Context, c *clientv3.Client) error {
			return second(c.UserChangePassword(ctx, "orderly", text))
		}
	}
	for _, steps := range [][]step{
		{{"another password", password("other")}, {"the password back", password("secret")}},
		{{"authentication off", func(ctx context.Context, c *clientv3.Client) error { return second(c.AuthDisable(ctx)) }},
			{"authentication on", func(ctx context.Context, c *clientv3.Client) error { return second(c.AuthEnable(ctx)) }}},
		{{"no rights", func(ctx context.Context, c *clientv3.Client) error {
			return second(c.RoleRevokePermission(ctx, "orderly", etcd.DefaultNamespace, orderlyEnd))
		}}, {"rights again", func(ctx context.Context, c *clientv3.Client) error {
			return second(c.RoleGrantPermission(ctx, "orderly", etcd.DefaultNamespace, orderlyEnd, clientv3.PermissionType(clientv3.PermReadWrite)))
		}}},
	} {
		v := startVisitors(here, there)
		for _, step := range steps {
			o.do(step.change)
			time.Sleep(time.Second)
		}
		v.check(t, "after "+steps[0].name+", "+steps[1].name)
	}
	wait.Until(t, "the queue is empty", func() bool { return length(t, here, "a_") == 0 })
}

// A process whose user may no longer write cannot delete its tickets. Bug: it
// renewed its lease all the same, and so blocked all other machines.
func TestRightToWriteLost(t *testing.T) {
	t.Parallel() // it mostly waits
	const ttl = 3 * time.Second
	m := startStandalone(t, "--bcrypt-cost", "4")
	o := demandLogin(t, m.URL)
	here := open(t, etcd.Options{Username: "orderly", Password: "secret", TTL: ttl}, m.URL)
	there := open(t, etcd.Options{Username: "root", Password: "root", TTL: ttl}, m.URL)
	holder := enter(t, here, arrival("a_"))
	next := join(t, there, arrival("a_"))
	o.do(func(ctx context.Context, c *clientv3.Client) error {
		return second(c.RoleRevokePermission(ctx, "orderly", etcd.DefaultNamespace, orderlyEnd))
	})
	o.grant(clientv3.PermissionType(clientv3.PermRead))
	left := time.Now()
	holder.Leave()
	(<-next).leave(t)
	if took := time.Since(left); took > ttl+2*time.Second {
		t.Errorf("the next one entered after %s; promised: at most %s", took, ttl+2*time.Second)
	}
	wait.Until(t, "the error names what is wrong", func() bool {
		a := arrival("a_")
		a.Timeout = 100 * time.Millisecond
		_, err := here.Enter(context.Background(), a)
		return err != nil && serializer.ReasonOf(err) == serializer.ReasonStorage
	})
	o.grant(clientv3.PermissionType(clientv3.PermReadWrite))
	wait.Until(t, "the user who may write again enters", func() bool {
		a := arrival(strconv.Itoa(1))
		turn, err := here.Enter(context.Background(), a)
		if err == nil {
			turn.Leave()
		}
		return err == nil
	})
}
