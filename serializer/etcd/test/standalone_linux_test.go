package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// standalone is a cluster of one, Debian's etcd, whose process a test may stop
// and whose data it may replace.
type standalone struct {
	*testetcd.Member
	process *process
	member  member
}

// startStandalone runs it until the test ends.
func startStandalone(t *testing.T, more ...string) *standalone {
	t.Helper()
	m := members(t.TempDir(), 1, func(int, int) string { return testetcd.FreeAddress(t) })[0]
	s := &standalone{Member: &testetcd.Member{URL: m.client}, process: runProcess(t, m.debian(t, more...)), member: m}
	s.waitReady(t)
	return s
}

// waitReady waits until etcd answers, even if only that a login is needed.
func (s *standalone) waitReady(t *testing.T) {
	t.Helper()
	c := s.Client(t)
	wait.Until(t, "etcd answers", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "x")
		return err == nil || status.Code(err) == codes.InvalidArgument
	})
}

// snapshot saves the data as an operator does.
func (s *standalone) snapshot(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot.db")
	run(t, "etcdctl", "--endpoints", s.URL, "snapshot", "save", file)
	return file
}

// restore kills etcd and starts it with the data of a snapshot.
func (s *standalone) restore(t *testing.T, snapshot, clusterToken string) {
	t.Helper()
	s.process.kill()
	if err := os.RemoveAll(s.member.dir); err != nil {
		t.Fatal(err)
	}
	run(t, "etcdctl", "snapshot", "restore", snapshot, "--name", s.member.name, "--data-dir", s.member.dir,
		"--initial-cluster", s.member.cluster, "--initial-advertise-peer-urls", s.member.peer, "--initial-cluster-token", clusterToken)
	s.process.start(t)
	s.waitReady(t)
}

// metric sums up the values of one of etcd's metrics whose lines have all the
// texts.
func (s *standalone) metric(t *testing.T, name string, texts ...string) (sum float64) {
	t.Helper()
	answer, err := http.Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
lines:
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, name) {
			continue
		}
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		var value float64
		fields := strings.Fields(line)
		if _, err := fmt.Sscan(fields[len(fields)-1], &value); err != nil {
			t.Fatalf("reading %q: %v", line, err)
		}
		sum += value
	}
	return sum
}

// fill writes until etcd refuses for lack of space.
func fill(t *testing.T, m *testetcd.Member) {
	t.Helper()
	c, value := m.Client(t), strings.Repeat("x", 900<<10)
	i := 0
	wait.Until(t, "etcd is full", func() bool { // it counts what it has synced
		i++
		_, err := c.Put(context.Background(), fmt.Sprintf("filler%d", i), value)
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
}

// makeRoom has etcd accept writes again.
func makeRoom(t *testing.T, m *testetcd.Member) {
	t.Helper()
	c, ctx := m.Client(t), context.Background()
	answer, err := c.Delete(ctx, "filler", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return second(c.Compact(ctx, answer.Header.Revision)) },
		func() error { return second(c.Defragment(ctx, m.URL)) },
		func() error { return second(c.AlarmDisarm(ctx, &clientv3.AlarmMember{})) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}
