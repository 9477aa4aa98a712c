// Package test contains the tests of the etcd engine's Caddy module against a real etcd.
// It is a separate Go module, so that users of the engine do not need an etcd server.
package test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

func TestMain(m *testing.M) { testetcd.Main(m) }

// awaitLeases waits until etcd has a number of leases.
func awaitLeases(t *testing.T, c *clientv3.Client, want int) {
	t.Helper()
	wait.Eventually(t, fmt.Sprintf("there are %d leases", want), func() error {
		if n := len(testetcd.Leases(t, c)); n != want {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}
