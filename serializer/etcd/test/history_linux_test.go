package test

import (
	"context"
	"maps"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
	links   [3][]link // of each process
	engines []*serializer.Engine

	endedLeases bool // etcd has, when a frozen member woke up in this round
}

func (c *tested) faults() map[string]func() {
	someone := func() *testetcd.Server { return c.members[rand.IntN(3)] }
	part := func(links []link, d time.Duration) {
		for _, parted := range []bool{true, false} {
			for _, link := range links {
				link.Part(parted)
			}
			if parted {
				time.Sleep(d)
			}
		}
	}
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
		"a process cut off": func() { part(c.links[rand.IntN(3)], c.ttl+time.Second) },
		"a process led to an empty cluster": func() {
			links := c.links[rand.IntN(3)]
			for _, link := range links {
				link.lead(c.other.URL)
			}
			time.Sleep(2*c.ttl + time.Second)
			for i, link := range links {
				link.lead(c.urls[i])
			}
		},
		"a process cut off from one member": func() { part(c.links[rand.IntN(3)][:1], 2*time.Second) },
		"connections broken": func() {
			for range 5 {
				for _, links := range c.links {
					for _, link := range links {
						link.Cut()
					}
				}
				time.Sleep(200 * time.Millisecond)
			}
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

// TestFaults stops processes, too. Two may be inside when an old leader of etcd wakes up and ends leases.
func TestHistories(t *testing.T) {
	c := &tested{t: t, ttl: 5 * time.Second, other: testetcd.Start(t, testetcd.Own)}
	c.members, c.urls = startTrio(t, testetcd.Debian, "--auth-token-ttl", "2")
	c.boss = demandLogin(t, c.urls...)
	for i := range c.links {
		var endpoints []string
		for _, to := range c.urls {
			link := startLink(t, to)
			c.links[i], endpoints = append(c.links[i], link), append(endpoints, link.url())
		}
		c.engines = append(c.engines, open(t, etcd.Options{Username: "orderly", Password: "secret", TTL: c.ttl}, endpoints...))
	}
	testlease.Histories{TTL: c.ttl, Engines: c.engines, Faults: c.faults, Excused: func() bool {
		ended := c.endedLeases
		c.endedLeases = false
		return ended
	}}.Run(t)
}
