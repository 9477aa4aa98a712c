// Package library measures package serializer in processes of its own: what a
// turn costs, in time, memory and system calls.
package library

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The engines that can be measured.
const (
	File        = "file"
	Memory      = "memory"
	Channel     = "channel"     // a list of channels: the least that keeps an order
	Predecessor = "predecessor" // the algorithm of mod_serializer
)

func open(engine, dir string) (serializer.Engine, error) {
	switch engine {
	case File:
		return serializer.OpenFile(dir, serializer.FileOptions{})
	case Memory:
		return serializer.NewMemory(serializer.MemoryOptions{}), nil
	case Channel:
		return new(channels), nil
	case Predecessor:
		return &predecessor{dir: dir}, nil
	}
	return nil, fmt.Errorf("there is no engine %q", engine)
}

var arrival = serializer.Arrival{
	Queue:  "bench_",
	Client: netip.MustParseAddrPort("192.0.2.1:36794"),
	Rule:   serializer.Rule{Limit: 1},
	// As by default in Caddy. Nobody here waits that long.
	Timeout: time.Minute,
}

// turns is n turns of one caller.
func turns(ctx context.Context, e serializer.Engine, n int) error {
	for range n {
		turn, err := e.Enter(ctx, arrival)
		if err != nil {
			return err
		}
		turn.Leave()
	}
	return nil
}
