package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

var quota = []string{"--quota-backend-bytes", "2097152"}

// A full etcd refuses puts, but still deletes. Bug: the deletion of a ticket came with a
// put, so it was refused, and the next caller waited for nobody until its timeout.
func TestEtcdFull(t *testing.T) {
	t.Parallel()
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testetcd.Start(t, program, quota...)
			here, there := open(t, etcd.Options{}, m.URL), open(t, etcd.Options{}, m.URL)
			holder := testlease.Enter(t, here).Turn
			second, next := testlease.Join(t, here), testlease.Join(t, there)
			fill(t, m)
			holder.Leave()
			second.Wait(t).Leave()
			left := time.Now()
			next.Wait(t).Leave()
			if took := time.Since(left); took > 5*time.Second {
				t.Errorf("the next one entered after %s", took)
			}
			_, err := here.Enter(t.Context(), arrival("a_"))
			wantRefusal(t, err, serializer.ReasonStorage, rpctypes.ErrNoSpace)
			makeRoom(t, m)
			testlease.EnterSoon(t, there)
			waitUntilEmpty(t, m.Client(t))
		})
	}
}

// The request for a ticket was carried out and its answer lost; the next
// attempt finds etcd full. The ticket must not stay.
func TestFullAfterLostAnswer(t *testing.T) {
	t.Parallel()
	m := testetcd.Start(t, testetcd.Debian, quota...)
	c, link := m.Client(t), startLink(t, m.URL)
	here, there := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	testlease.Enter(t, here).Turn.Leave()
	waitUntilEmpty(t, c)
	before := testlease.Enter(t, there, arrival("b_")).Turn
	if r := loseAnswer(t, here, link, c, 2, func() { fill(t, m) }); r.End(t) == nil {
		r.Turn.Leave()
	} else {
		wantRefusal(t, r.Err, serializer.ReasonStorage, serializer.ErrStorage)
	}
	before.Leave()
	waitUntilEmpty(t, c)
}

// fill writes until etcd refuses for lack of space.
func fill(t *testing.T, m *testetcd.Server) {
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
func makeRoom(t *testing.T, m *testetcd.Server) {
	t.Helper()
	c, ctx := m.Client(t), t.Context()
	answer, err := c.Delete(ctx, "filler", clientv3.WithPrefix())
	testlease.Must(t, err)
	testlease.Must(t, testlease.Second(c.Compact(ctx, answer.Header.Revision)))
	testlease.Must(t, testlease.Second(c.Defragment(ctx, m.URL)))
	testlease.Must(t, testlease.Second(c.AlarmDisarm(ctx, &clientv3.AlarmMember{})))
}
