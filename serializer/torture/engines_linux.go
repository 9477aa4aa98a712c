package main

import (
	"maps"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// engines are those that can be tortured: the one that should hold, and others
// that must be found out.
var engines = map[string]func(dir string, clock func() time.Time) (serializer.Engine, error){
	"file": func(dir string, clock func() time.Time) (serializer.Engine, error) {
		return serializer.OpenFile(dir, serializer.FileOptions{Clock: clock})
	},
	"predecessor": func(dir string, clock func() time.Time) (serializer.Engine, error) {
		return openPredecessor(dir, clock)
	},
}

func engineNames() []string { return slices.Sorted(maps.Keys(engines)) }

func openEngine(name, dir string, clock func() time.Time) (serializer.Engine, error) {
	return engines[name](dir, clock)
}
