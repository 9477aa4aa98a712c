// Package test contains the tests of the etcd engine's Caddy module against a real etcd.
// It is a separate Go module, so that users of the engine do not need an etcd server.
package test

import (
	"os"
	"testing"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

func TestMain(m *testing.M) {
	testetcd.ServeIfAsked()
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
