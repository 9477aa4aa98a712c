// Package test contains the tests of the etcd engine's Caddy module against a real etcd.
// It is a separate Go module, so that users of the engine do not need an etcd server.
package test

import (
	"context"
	"fmt"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

// TestMain silences etcd's client, which logs the faults that the tests cause to standard
// error.
func TestMain(m *testing.M) {
	if err := os.Setenv("ETCD_CLIENT_DEBUG", "fatal"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// leases counts the leases in etcd.
func leases(t *testing.T, c *clientv3.Client) int {
	t.Helper()
	answer, err := c.Leases(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return len(answer.Leases)
}

// awaitLeases waits until etcd has a number of leases.
func awaitLeases(t *testing.T, c *clientv3.Client, want int) {
	t.Helper()
	wait.Eventually(t, fmt.Sprintf("there are %d leases", want), func() error {
		if n := leases(t, c); n != want {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}
