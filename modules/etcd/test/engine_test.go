package test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	caddyetcd "github.com/orderly-http/caddy-orderly/modules/etcd"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// openModule makes an engine as Caddy does.
func openModule(t *testing.T, module *caddyetcd.Engine) *serializer.Engine {
	t.Helper()
	if err := module.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	store, err := module.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	e := serializer.New(store, serializer.Options{})
	t.Cleanup(func() { e.Close() })
	return e
}

// secured prepares a member that uses https.
func secured(t *testing.T, info transport.TLSInfo) *testetcd.Member {
	t.Helper()
	m := testetcd.New(t)
	m.Config.BcryptCost = 4
	m.Config.ListenClientUrls[0].Scheme, m.Config.AdvertiseClientUrls[0].Scheme = "https", "https"
	m.Config.ClientTLSInfo = info
	m.URL = m.Config.ListenClientUrls[0].String()
	return m
}

// enableLogin makes a member require a login.
func enableLogin(t *testing.T, m *testetcd.Member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if err := testetcd.DemandLogin(ctx, m.Client(t), etcd.DefaultNamespace); err != nil {
		t.Fatal(err)
	}
}

var arrival = serializer.Arrival{Queue: "a_", Timeout: 20 * time.Second}

// enterSoon enters as soon as possible, and leaves.
func enterSoon(t *testing.T, e *serializer.Engine) {
	t.Helper()
	wait.Eventually(t, "arrivals enter", func() error {
		turn, err := e.Enter(t.Context(), arrival)
		if err == nil {
			turn.Leave()
		}
		return err
	})
}

type result struct {
	turn serializer.Turn
	err  error
}

// enterLater starts an arrival, and returns once the queue has a number of tickets.
func enterLater(t *testing.T, e *serializer.Engine, tickets int) <-chan result {
	t.Helper()
	done := make(chan result, 1)
	go func() {
		turn, err := e.Enter(t.Context(), arrival)
		done <- result{turn, err}
	}()
	wait.Eventually(t, fmt.Sprintf("the queue has %d tickets", tickets), func() error {
		if n := len(ticketsOf(t, e)); n != tickets {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	return done
}

// ticketsOf lists the tickets of the only queue.
func ticketsOf(t *testing.T, e *serializer.Engine) []serializer.TicketState {
	t.Helper()
	queues, err := e.Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(queues) == 0 {
		return nil
	}
	return queues[0].Tickets
}

func tokenOfLast(t *testing.T, e *serializer.Engine) uint64 {
	t.Helper()
	tickets := ticketsOf(t, e)
	token, err := strconv.ParseUint(tickets[len(tickets)-1].Token, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
