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

func (rival) Close() error { return nil }

// rivalTurn leaves by a function.
type rivalTurn func()

func (rivalTurn) Token() uint64 { return 0 }
func (rivalTurn) Position() int { return 0 }
func (leave rivalTurn) Leave()  { leave() }

// channels is the least that keeps an order: those who wait hand each other the turn
// through channels. Nobody can give up.
type channels struct {
	rival
	mu      sync.Mutex
	inside  int
	waiting []chan struct{}
}

func (c *channels) Enter(context.Context, serializer.Arrival) (serializer.Turn, error) {
	c.mu.Lock()
	if c.inside == 0 {
		c.inside = 1
		c.mu.Unlock()
		return rivalTurn(c.leave), nil
	}
	ready := make(chan struct{}, 1)
	c.waiting = append(c.waiting, ready)
	c.mu.Unlock()
	<-ready
	return rivalTurn(c.leave), nil
}

func (c *channels) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.inside = 0
		return
	}
	c.waiting[0] <- struct{}{}
	c.waiting = c.waiting[1:]
}

func (c *channels) Queues(context.Context) ([]serializer.QueueState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []serializer.QueueState{{Inside: c.inside, Waiting: len(c.waiting)}}, nil
}

// predecessor waits as mod_serializer does: it makes a file named after the time, and
// every 5 ms reads the whole directory for an earlier one.
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
		_, earlier, err := p.read(name)
		if err != nil {
			return nil, err
		}
		if !earlier {
			return rivalTurn(func() { _ = os.Remove(path) }), nil
		}
		time.Sleep(predecessorPoll)
	}
}

// read returns how many files there are, and whether one is earlier than own.
func (p *predecessor) read(own string) (n int, earlier bool, err error) {
	dir, err := os.Open(p.dir)
	if err != nil {
		return 0, false, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, arrival.Queue) && name < own {
			return len(names), true, nil
		}
	}
	return len(names), false, err
}

func (p *predecessor) Queues(context.Context) ([]serializer.QueueState, error) {
	n, _, err := p.read("")
	return []serializer.QueueState{{Inside: min(n, 1), Waiting: max(n-1, 0)}}, err
}
