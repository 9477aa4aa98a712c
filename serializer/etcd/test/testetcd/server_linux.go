// Package testetcd runs members of etcd in separate processes, for tests.
package testetcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// Programs of etcd.
const (
	Own    = ""     // 3.7, which each test binary contains
	Debian = "etcd" // of this system, 3.4
)

// mark in the environment makes a program that calls [ServeIfAsked] etcd itself.
const mark = "ORDERLY_TEST_ETCD"

// ServeIfAsked does not return if this process was started to be etcd. Otherwise, it silences etcd's
// client, which logs the faults that tests cause to standard error. Call it in TestMain.
func ServeIfAsked() {
	if os.Getenv(mark) != "" {
		etcdmain.Main(os.Args)
	}
	_ = os.Setenv("ETCD_CLIENT_DEBUG", "fatal") // fails for malformed names only
}

// Server is a member of a cluster.
type Server struct {
	*testprocess.Process // the one that runs, or has run last

	URL, Peer string      // where it listens, for clients and for other members
	Dir       string      // its data
	TLS       *tls.Config // of clients; nil for http

	t       testing.TB
	program string
	flags   []string
}

// Start runs a cluster of one until the end of the test.
func Start(t testing.TB, program string, flags ...string) *Server {
	t.Helper()
	s := Prepare(t, program, 1, flags...)[0]
	s.Run()
	s.AwaitAnswer()
	return s
}

// Prepare makes n members of a cluster, which do not run yet. With a certificate among their flags, they
// speak https to clients.
func Prepare(t testing.TB, program string, n int, flags ...string) (members []*Server) {
	t.Helper()
	if _, err := exec.LookPath(Debian); err != nil && program == Debian {
		t.Fatal("this test needs an etcd server, on Debian from etcd-server: ", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, scheme := t.TempDir(), "http://"
	if slices.Contains(flags, "--cert-file") {
		scheme = "https://"
	}
	var cluster []string
	for i := range n {
		name, url, peer := "m"+strconv.Itoa(i), scheme+testprocess.FreeAddr(t), "http://"+testprocess.FreeAddr(t)
		members = append(members, &Server{
			URL: url, Peer: peer, Dir: filepath.Join(dir, name), t: t, program: cmp.Or(program, self),
			flags: append([]string{
				"--name", name, "--log-level", "error", "--bcrypt-cost", "4",
				"--listen-client-urls", url, "--advertise-client-urls", url,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			}, flags...),
		})
		cluster = append(cluster, name+"="+peer)
	}
	for _, m := range members {
		m.flags = append(m.flags, "--initial-cluster", strings.Join(cluster, ","))
	}
	return members
}

// Run starts the member, also again, and does not wait for it.
func (s *Server) Run() {
	s.t.Helper()
	cmd := exec.Command(s.program, append([]string{"--data-dir", s.Dir}, s.flags...)...)
	cmd.Env = append(os.Environ(), mark+"=1")
	s.Process = testprocess.Start(s.t, cmd)
}

// AwaitAnswer waits until etcd answers, even if only that a login is needed.
func (s *Server) AwaitAnswer() {
	s.t.Helper()
	c := s.Client(s.t)
	wait.Eventually(s.t, "etcd answers", func() error {
		s.WantRunning()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "x")
		if status.Code(err) == codes.InvalidArgument {
			return nil
		}
		return err
	})
}

// Client talks to etcd as an operator would.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.URL}, TLS: s.TLS, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// DemandLogin makes the users root and orderly, whose passwords are root and secret,
// and switches authentication on. orderly may read and write in the namespace.
func DemandLogin(ctx context.Context, c *clientv3.Client, namespace string) error {
	end := clientv3.GetPrefixRangeEnd(namespace)
	return errors.Join(
		testlease.Second(c.UserAdd(ctx, "root", "root")),
		testlease.Second(c.UserGrantRole(ctx, "root", "root")),
		testlease.Second(c.RoleAdd(ctx, "orderly")),
		testlease.Second(c.RoleGrantPermission(ctx, "orderly", namespace, end, clientv3.PermissionType(clientv3.PermReadWrite))),
		testlease.Second(c.UserAdd(ctx, "orderly", "secret")),
		testlease.Second(c.UserGrantRole(ctx, "orderly", "orderly")),
		testlease.Second(c.AuthEnable(ctx)),
	)
}
