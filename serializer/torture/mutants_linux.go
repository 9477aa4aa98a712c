//go:build mutants

package main

import (
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

func init() {
	for name := range serializer.Mutants {
		engines[name] = func(dir string, clock func() time.Time) (serializer.Engine, error) {
			return serializer.OpenMutant(name, dir, serializer.FileOptions{Clock: clock})
		}
	}
}
