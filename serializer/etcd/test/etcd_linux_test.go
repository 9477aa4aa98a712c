// Package test holds the tests of the etcd engine against etcd itself. It is a
// module of its own, so that nobody who uses the engine needs an etcd server.
//
//	go test ./...                                                # everything that this user may do
//	go test -run TestHistories -v -timeout 60m . -for 30m        # histories
//	go test -run - -bench HandOver -timeout 20m .                # figures
//
// Some tests need the system's etcd, on Debian from etcd-server.
package test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/internal/testrelay"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// programs are those of etcd that differ in what they do to the engine.
var programs = map[string]string{"etcd 3.4": testetcd.Debian, "etcd 3.7": testetcd.Own}

// startTrio starts three members until the end of the test.
func startTrio(t testing.TB, program string, flags ...string) (members []*testetcd.Server, endpoints []string) {
	t.Helper()
	members = testetcd.Prepare(t, program, 3, flags...)
	for _, m := range members {
		m.Run()
		endpoints = append(endpoints, m.URL)
	}
	return members, endpoints
}

// open makes an engine, as a process does, and waits until it has a lease.
func open(t testing.TB, o etcd.Options, endpoints ...string) *serializer.Engine {
	t.Helper()
	return testlease.Ready(t, openAlone(t, o, endpoints...))
}

// openAlone makes an engine, and does not wait for its cluster.
func openAlone(t testing.TB, o etcd.Options, endpoints ...string) *serializer.Engine {
	t.Helper()
	o.Endpoints = endpoints
	store, err := etcd.Open(o)
	testlease.Must(t, err)
	return testlease.NewEngine(t, store)
}

// link is a relay to a member.
type link struct{ *testrelay.Relay }

func startLink(t testing.TB, url string) link {
	return link{testrelay.Start(t, strings.TrimPrefix(url, "http://"))}
}

func (l link) url() string { return "http://" + l.Addr }

func arrival(queue string) serializer.Arrival { return testlease.Arrival(queue, 20*time.Second) }

func queueOf(t testing.TB, e *serializer.Engine, queue string) serializer.QueueState {
	t.Helper()
	queues, err := e.Queues(context.Background())
	testlease.Must(t, err)
	for _, q := range queues {
		if q.Prefix == queue {
			return q
		}
	}
	return serializer.QueueState{}
}

// evict has an engine evict the i-th ticket of a list.
func evict(t testing.TB, e *serializer.Engine, q serializer.QueueState, i int) {
	t.Helper()
	token, err := strconv.ParseUint(q.Tickets[i].Token, 10, 64)
	testlease.Must(t, err)
	testlease.Must(t, e.Evict(context.Background(), q.Prefix, token))
}

func wantRefusal(t testing.TB, err error, reason serializer.Reason, cause error) {
	t.Helper()
	var refused *serializer.Refused
	if !errors.As(err, &refused) || refused.Reason != reason || !errors.Is(err, cause) {
		t.Errorf("got %v, want a refusal for %s", err, reason)
	}
}

// ticketsOf returns the tickets in etcd of queues whose names begin so, in order.
func ticketsOf(t testing.TB, c *clientv3.Client, queues string) (tickets []ticket) {
	t.Helper()
	answer, err := c.Get(context.Background(), etcd.DefaultNamespace+queues, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	testlease.Must(t, err)
	for _, kv := range answer.Kvs {
		if key := string(kv.Key); !strings.HasPrefix(key, etcd.DefaultNamespace+"!") {
			tickets = append(tickets, ticket{key, string(kv.Value), clientv3.LeaseID(kv.Lease)})
		}
	}
	return tickets
}

// ticket is one as it stands in etcd.
type ticket struct {
	key, value string
	lease      clientv3.LeaseID
}

// putAgain writes a ticket as its owner did, to a key of that name and suffix.
func (k ticket) putAgain(t testing.TB, c *clientv3.Client, suffix string) {
	t.Helper()
	testlease.Must(t, testlease.Second(c.Put(context.Background(), k.key+suffix, k.value, clientv3.WithLease(k.lease))))
}

func waitUntilEmpty(t testing.TB, c *clientv3.Client) {
	t.Helper()
	wait.Eventually(t, "no ticket is left in etcd", func() error {
		if tickets := ticketsOf(t, c, ""); len(tickets) > 0 {
			return fmt.Errorf("there are %+v", tickets)
		}
		return nil
	})
}

// metric sums up the values of one of etcd's metrics whose lines have a text.
func metric(m *testetcd.Server, name, text string) (sum float64) {
	out, _ := exec.Command("curl", "--silent", "--max-time", "1", m.URL+"/metrics").Output() // the member may not run
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, name) && strings.Contains(line, text) {
			value, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			sum += value
		}
	}
	return sum
}
