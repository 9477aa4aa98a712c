package test

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"syscall"
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

// tested is a cluster, and three processes with a link each to each member.
type tested struct {
	t       *testing.T
	ttl     time.Duration
	members []*testetcd.Server
	urls    []string // of the members
	boss    *operator
	other   *testetcd.Server
	links   [][]*testrelay.Relay // of each process
	engines []*serializer.Engine

	endedLeases bool // etcd has, when a frozen member woke up in this round
}

func (c *tested) faults() map[string]func() {
	someone := func() *testetcd.Server { return c.members[rand.IntN(3)] }
	return map[string]func(){
		"a member killed": func() {
			m := someone()
			m.Kill()
			time.Sleep(3 * time.Second)
			m.Run()
		},
		"a member frozen": func() {
			m := someone()
			m.Signal(syscall.SIGSTOP)
			time.Sleep(c.ttl + time.Second)
			before := c.leases()
			m.Signal(syscall.SIGCONT)
			c.endedLeases = c.endedLeases || wait.Poll(c.ttl/2, func() bool { return !maps.Equal(c.leases(), before) })
		},
		"a process led to an empty cluster": func() {
			links := c.links[rand.IntN(3)]
			for _, link := range links {
				link.Lead(strings.TrimPrefix(c.other.URL, "http://"))
			}
			time.Sleep(2*c.ttl + time.Second)
			for i, link := range links {
				link.Lead(strings.TrimPrefix(c.urls[i], "http://"))
			}
		},
		"a process cut off from one member": func() {
			link := c.links[rand.IntN(3)][0]
			link.Part(true)
			time.Sleep(2 * time.Second)
			link.Part(false)
		},
		"history compacted": func() { c.boss.do(compact) },
		"tokens ended": func() {
			c.boss.do(password("other"))
			time.Sleep(500 * time.Millisecond)
			c.boss.do(password("secret"))
		},
	}
}

// leases are those in etcd.
func (c *tested) leases() map[clientv3.LeaseID]bool {
	leases := make(map[clientv3.LeaseID]bool)
	c.boss.do(func(ctx context.Context, client *clientv3.Client) error {
		all, err := client.Leases(ctx)
		if err != nil {
			return err
		}
		for _, lease := range all.Leases {
			leases[lease.ID] = true
		}
		return nil
	})
	return leases
}

// compact drops the history before now.
func compact(ctx context.Context, c *clientv3.Client) error {
	answer, err := c.Get(ctx, "x")
	if err != nil {
		return err
	}
	return testlease.Second(c.Compact(ctx, answer.Header.Revision))
}

// Two may be inside when an old leader of etcd wakes up and ends leases.
func TestHistories(t *testing.T) {
	c := &tested{t: t, ttl: 5 * time.Second, other: testetcd.Start(t, testetcd.Own)}
	c.members, c.urls = startTrio(t, testetcd.Debian, "--auth-token-ttl", "2")
	c.boss = demandLogin(t, c.urls...)
	for range 3 {
		var links []*testrelay.Relay
		var endpoints []string
		for _, to := range c.urls {
			link := startLink(t, to)
			links, endpoints = append(links, link.Relay), append(endpoints, link.url())
		}
		c.links = append(c.links, links)
		c.engines = append(c.engines, open(t, etcd.Options{Username: "orderly", Password: "secret", TTL: c.ttl}, endpoints...))
	}
	testlease.Histories{TTL: c.ttl, Engines: c.engines, Links: c.links, Faults: c.faults, Excused: func() bool {
		ended := c.endedLeases
		c.endedLeases = false
		return ended
	}}.Run(t)
}
