package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// standalone is a cluster of one, whose process a test may kill and whose data it may
// replace.
type standalone struct {
	*testetcd.Member
	process *process
	member  member
}

// startStandalone runs it until the test ends: etcd of this system, or a modern member.
func startStandalone(t *testing.T, program string, more ...string) *standalone {
	t.Helper()
	m := members(t.TempDir(), 1, func(int, int) string { return testetcd.FreeAddress(t) })[0]
	process := m.modern(t)
	if program == "etcd" {
		process = m.debian(t, more...)
	}
	s := &standalone{Member: &testetcd.Member{URL: m.client}, process: runProcess(t, process), member: m}
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

// metric sums up the values of one of etcd's metrics whose lines have a text.
func (s *standalone) metric(t *testing.T, name, text string) (sum float64) {
	t.Helper()
	answer, err := http.Get(s.URL + "/metrics")
	testlease.Must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	testlease.Must(t, err)
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, name) && strings.Contains(line, text) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			testlease.Must(t, err)
			sum += value
		}
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
	c, ctx := m.Client(t), t.Context()
	answer, err := c.Delete(ctx, "filler", clientv3.WithPrefix())
	testlease.Must(t, err)
	testlease.Must(t, testlease.Second(c.Compact(ctx, answer.Header.Revision)))
	testlease.Must(t, testlease.Second(c.Defragment(ctx, m.URL)))
	testlease.Must(t, testlease.Second(c.AlarmDisarm(ctx, &clientv3.AlarmMember{})))
}
