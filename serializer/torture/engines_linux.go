package main

import (
	"maps"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// engines are the engines that can be tortured: the real one, which should hold, and
// others whose defects must be detected.
var engines = map[string]func(dir string, clock func() time.Time) (serializer.Engine, error){
	"file": func(dir string, clock func() time.Time) (serializer.Engine, error) {
		return serializer.OpenFile(dir, serializer.FileOptions{Clock: clock})
	},
	"predecessor": openPredecessor,
}

func engineNames() []string { return slices.Sorted(maps.Keys(engines)) }
