package library

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Echo is a byte that two processes send each other through named pipes: the least
// that it takes to wake a goroutine of another process.
type Echo struct {
	Dir  string
	Hold time.Duration // between a byte that came and the answer
	Laps int           // answers of each
}

// bytePipes are the pipes, by the process that reads them.
var bytePipes = [2]string{"there", "back"}

type echoing struct {
	Echo
	Process int
}

// echoes are the moments of one process, on the monotonic clock.
type echoes struct{ Sent, Came []int64 }

func init() { proc.Role("echo", echo) }

// Run measures how long a byte takes.
func (e Echo) Run(ctx context.Context) (figures.Values, error) {
	for _, name := range bytePipes {
		if err := unix.Mkfifo(filepath.Join(e.Dir, name), 0o600); err != nil {
			return nil, fmt.Errorf("making pipe %s in %s: %w", name, e.Dir, err)
		}
	}
	moments, err := proc.AskAll[echoes](ctx, "echo", []any{echoing{e, 0}, echoing{e, 1}}, proc.Tracer{})
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for i, other := range []echoes{moments[1], moments[0]} {
		for lap, sent := range moments[i].Sent {
			took = append(took, time.Duration(other.Came[lap]-sent))
		}
	}
	return passes(took), nil
}

func echo(_ context.Context, e echoing) (m echoes, err error) {
	var pipes [2]*os.File
	for i, name := range bytePipes {
		// For reading and writing, so that nobody waits for the other to open it.
		if pipes[i], err = os.OpenFile(filepath.Join(e.Dir, name), os.O_RDWR, 0); err != nil {
			return m, err
		}
		defer pipes[i].Close()
	}
	in, out := pipes[e.Process], pipes[1-e.Process]
	m = echoes{make([]int64, 0, e.Laps), make([]int64, 0, e.Laps)}
	var one [1]byte
	for turn := range 2 * e.Laps {
		if turn%2 == e.Process { // process 0 begins
			time.Sleep(e.Hold)
			m.Sent = append(m.Sent, monotonic())
			_, err = out.Write(one[:])
		} else {
			_, err = io.ReadFull(in, one[:])
			m.Came = append(m.Came, monotonic())
		}
		if err != nil {
			return m, err
		}
	}
	return m, nil
}
