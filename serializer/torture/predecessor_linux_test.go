package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

func init() {
	openers["predecessor"] = func(p *process) (engine, error) { return &predecessor{dir: p.Dir, clock: p.clock}, nil }
}

// predecessor is the algorithm of mod_serializer, with its defects. The harness must
// detect them: if it accepted this engine, its runs would prove nothing.
//
//   - It reads the clock first and makes the file later.
//   - It removes files that are older than five minutes by the clock.
//   - It takes every file that begins with its prefix for a file of its queue.
//   - It treats an error in reading the directory as the end of the directory.
//   - It polls every 5 ms.
type predecessor struct {
	engine // nil: it has no lists, evictions or pauses
	dir    string
	clock  func() time.Time
}

const (
	predecessorPoll  = 5 * time.Millisecond
	predecessorStale = 5 * time.Minute
)

func (p *predecessor) Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	token := uint64(p.clock().UnixMicro())
	name := lockfile.Name{Prefix: a.Queue, Number: token, Client: a.Client}.String()
	turn := &predecessorTurn{token: token, path: filepath.Join(p.dir, name)}
	if err := os.WriteFile(turn.path, nil, 0o600); err != nil {
		return nil, refusal(a, serializer.ReasonStorage, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.Timeout, serializer.ErrTimeout)
	defer cancel()
	for p.earlier(a.Queue, name) {
		select {
		case <-time.After(predecessorPoll):
		case <-ctx.Done():
			turn.Leave()
			return nil, refusal(a, serializer.ReasonTimeout, context.Cause(ctx))
		}
	}
	return turn, nil
}

// earlier reports whether there is an earlier file. It removes old files.
func (p *predecessor) earlier(prefix, own string) bool {
	entries, _ := os.ReadDir(p.dir)
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, prefix) || name >= own {
			continue
		}
		if p.stale(name[len(prefix):]) {
			_ = os.Remove(filepath.Join(p.dir, name))
			continue
		}
		return true
	}
	return false
}

func (p *predecessor) stale(digits string) bool {
	stamp, _ := strconv.ParseInt(digits[:min(20, len(digits))], 10, 64)
	return p.clock().Sub(time.UnixMicro(stamp)) > predecessorStale
}

func refusal(a serializer.Arrival, reason serializer.Reason, err error) error {
	return &serializer.Refused{Reason: reason, Queue: a.Queue, Err: err}
}

func (p *predecessor) Close() error { return nil }

type predecessorTurn struct {
	token uint64
	path  string
	once  sync.Once
}

func (t *predecessorTurn) Token() uint64 { return t.token }
func (t *predecessorTurn) Position() int { return 0 }
func (t *predecessorTurn) Leave()        { t.once.Do(func() { _ = os.Remove(t.path) }) }
