package test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// Bug: the lease of a process that had left stayed in a cluster that was without its majority
// for more than two ttl. The process itself waited for its end: another ttl.
func TestLongSilence(t *testing.T) {
	for _, silence := range testlease.Silences(4 * time.Second) {
		t.Run(fmt.Sprint(silence), func(t *testing.T) {
			t.Parallel()
			s := startTrio(t, func(m member) *process { return m.modern(t) })
			open := func() *testlease.Engine { return openAlone(t, etcd.Options{TTL: silence.TTL}, s.endpoints...) }
			wait.Until(t, "a member leads", func() bool { return slices.ContainsFunc(s.members, (*process).leads) })
			silenced := slices.DeleteFunc(slices.Clone(s.members), (*process).leads) // the next leader begins all leases anew
			signal := func(signal syscall.Signal) {
				for _, m := range silenced {
					m.signal(t, signal)
				}
			}
			client := (&testetcd.Member{URL: s.endpoints[0]}).Client(t)
			silence.Run(t, open, func() { signal(syscall.SIGSTOP) }, func() {
				signal(syscall.SIGCONT)
				wait.Eventually(t, "the members have a leader", func() error {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					defer cancel()
					return testlease.Second(client.Put(ctx, "plain", ""))
				})
			}, 2*time.Second)
		})
	}
}
