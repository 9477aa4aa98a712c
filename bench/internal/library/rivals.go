package library

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// rival is an engine that does no more than to be measured.
type rival struct{}

func (rival) Queues(context.Context) ([]serializer.QueueState, error) { return nil, nil }
func (rival) Evict(context.Context, string, uint64) error             { return serializer.ErrNoTicket }
func (rival) Path() string                                            { return "" }
func (rival) Close() error                                            { return nil }

// channels is the least that keeps an order: those who wait hand each other the
// turn through channels. Nobody can give up, be counted or be shown.
type channels struct {
	rival
	mu      sync.Mutex
	inside  bool
	waiting []chan struct{}
}

func (c *channels) Enter(context.Context, serializer.Arrival) (serializer.Turn, error) {
	c.mu.Lock()
	if !c.inside {
		c.inside = true
		c.mu.Unlock()
		return channelTurn{c}, nil
	}
	ready := make(chan struct{}, 1)
	c.waiting = append(c.waiting, ready)
	c.mu.Unlock()
	<-ready
	return channelTurn{c}, nil
}

type channelTurn struct{ *channels }

func (channelTurn) Token() uint64 { return 0 }
func (channelTurn) Position() int { return 0 }

func (c channelTurn) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.inside = false
		return
	}
	c.waiting[0] <- struct{}{}
	c.waiting = c.waiting[1:]
}

// predecessor waits as mod_serializer does: it makes a file named after the
// time, and every 5 ms reads the whole directory for an earlier one.
type predecessor struct {
	rival
	dir     string
	callers atomic.Int64
}

const predecessorPoll = 5 * time.Millisecond

func (p *predecessor) Enter(context.Context, serializer.Arrival) (serializer.Turn, error) {
	name := fmt.Sprintf("%s%020d002%08d192.0.2.1", arrival.Queue, time.Now().UnixMicro(), p.callers.Add(1)%1e8)
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, err
	}
	for {
		earlier, err := p.earlier(name)
		if err != nil {
			return nil, err
		}
		if !earlier {
			return predecessorTurn(path), nil
		}
		time.Sleep(predecessorPoll)
	}
}

func (p *predecessor) earlier(own string) (bool, error) {
	dir, err := os.Open(p.dir)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, arrival.Queue) && name < own {
			return true, nil
		}
	}
	return false, err
}

type predecessorTurn string

func (predecessorTurn) Token() uint64 { return 0 }
func (predecessorTurn) Position() int { return 0 }
func (t predecessorTurn) Leave()      { _ = os.Remove(string(t)) }
