package test

import (
	"fmt"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/enginetest"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
	"github.com/orderly-http/caddy-orderly/serializer/etcd/test/testetcd"
)

// Engines on one cluster behave like processes on several machines.
func TestEngineConforms(t *testing.T) {
	m := testetcd.Start(t)
	spaces := 0
	enginetest.Run(t, enginetest.Options{}, func(t testing.TB, n int) (engines []serializer.Engine) {
		spaces++
		for range n {
			engines = append(engines, open(t, etcd.Options{Namespace: fmt.Sprintf("space%d/", spaces)}, m.URL))
		}
		return engines
	})
}
