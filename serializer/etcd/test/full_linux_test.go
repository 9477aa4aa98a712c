package test

import (
	"strconv"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

const quota = 2 << 20 // bytes

// A full etcd refuses puts, but still deletes. Bug: the deletion of a ticket came with a
// put, so it was refused, and the next caller waited for nobody until its timeout.
func TestEtcdFull(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *testetcd.Member{
		"etcd 3.4": func(t *testing.T) *testetcd.Member {
			return startStandalone(t, "etcd", "--quota-backend-bytes", strconv.Itoa(quota)).Member
		},
		"etcd 3.7": func(t *testing.T) *testetcd.Member {
			m := testetcd.New(t)
			m.Config.QuotaBackendBytes = quota
			m.Start(t)
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t)
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
	m := startStandalone(t, "etcd", "--quota-backend-bytes", strconv.Itoa(quota))
	c, link := m.Client(t), startLink(t, m.URL)
	here, there := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	testlease.Enter(t, here).Turn.Leave()
	waitUntilEmpty(t, c)
	before := testlease.EnterAs(t, there, arrival("b_")).Turn
	if r := loseAnswer(t, here, link, c, 2, func() { fill(t, m.Member) }); r.End(t) == nil {
		r.Turn.Leave()
	} else {
		wantRefusal(t, r.Err, serializer.ReasonStorage, serializer.ErrStorage)
	}
	before.Leave()
	waitUntilEmpty(t, c)
}
