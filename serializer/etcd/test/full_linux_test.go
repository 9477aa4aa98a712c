package test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// A full etcd refuses puts, but still deletes. Bug: the deletion of a ticket came with a
// put, so it was refused, and the next caller waited for nobody until its timeout.
func TestEtcdFull(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *testetcd.Member{
		"etcd 3.4": func(t *testing.T) *testetcd.Member {
			return startStandalone(t, "--quota-backend-bytes", strconv.Itoa(quota)).Member
		},
		"etcd 3.7": func(t *testing.T) *testetcd.Member {
			m := testetcd.New(t)
			m.Config.QuotaBackendBytes = quota
			m.Start(t)
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			testEtcdFull(t, start(t))
		})
	}
}

const quota = 2 << 20 // bytes

func testEtcdFull(t *testing.T, m *testetcd.Member) {
	here := open(t, etcd.Options{}, m.URL)
	there := open(t, etcd.Options{}, m.URL)
	holder := enter(t, here, arrival("a_"))
	second := join(t, here, arrival("a_"))
	next := join(t, there, arrival("a_"))
	fill(t, m)
	holder.Leave()
	(<-second).leave(t)
	left := time.Now()
	(<-next).leave(t)
	if took := time.Since(left); took > 5*time.Second {
		t.Errorf("the next one entered after %s", took)
	}
	_, err := here.Enter(context.Background(), arrival("a_"))
	wantRefusal(t, err, serializer.ReasonStorage, rpctypes.ErrNoSpace)
	makeRoom(t, m)
	wait.Until(t, "arrivals enter again", func() bool {
		turn, err := there.Enter(context.Background(), arrival("a_"))
		if err == nil {
			turn.Leave()
		}
		return err == nil
	})
	waitUntilEmpty(t, m.Client(t))
}

// The request for a ticket was carried out and its answer lost; the next
// attempt finds etcd full. The ticket must not stay.
func TestFullAfterLostAnswer(t *testing.T) {
	t.Parallel() // it mostly waits
	m := startStandalone(t, "--quota-backend-bytes", strconv.Itoa(quota))
	c, link := m.Client(t), startRelay(t, m.URL)
	here, there := open(t, etcd.Options{TTL: time.Minute}, link.url()), open(t, etcd.Options{TTL: time.Minute}, m.URL)
	enter(t, here, arrival("a_")).Leave()
	waitUntilEmpty(t, c)
	before := enter(t, there, arrival("b_"))
	link.hold(true)
	done := make(chan result, 1)
	go func() {
		turn, err := here.Enter(context.Background(), arrival("a_"))
		done <- result{turn, err}
	}()
	wait.Until(t, "the ticket exists", func() bool { return len(keysOf(t, c)) == 2 })
	fill(t, m.Member)
	link.cut()
	link.hold(false)
	if r := <-done; r.err == nil {
		r.turn.Leave()
	} else {
		wantRefusal(t, r.err, serializer.ReasonStorage, serializer.ErrStorage)
	}
	before.Leave()
	waitUntilEmpty(t, c)
}
