package library

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Echo is a byte that two processes send each other through named pipes: the
// least that it takes to wake a goroutine of another process.
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
func (e Echo) Run(ctx context.Context) (Passes, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, name := range bytePipes {
		if err := unix.Mkfifo(filepath.Join(e.Dir, name), 0o600); err != nil {
			return Passes{}, fmt.Errorf("making pipe %s in %s: %w", name, e.Dir, err)
		}
	}
	var running [2]*proc.Running[echoes]
	for i := range running {
		var err error
		if running[i], err = proc.Begin[echoes](ctx, "echo", echoing{e, i}, nil); err != nil {
			return Passes{}, err
		}
	}
	var moments [2]echoes
	for i, r := range running {
		var err error
		if moments[i], err = r.Report(); err != nil {
			return Passes{}, err
		}
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
	// For reading and writing, so that nobody waits for the other to open it.
	in, err := os.OpenFile(filepath.Join(e.Dir, bytePipes[e.Process]), os.O_RDWR, 0)
	if err != nil {
		return m, err
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(e.Dir, bytePipes[1-e.Process]), os.O_RDWR, 0)
	if err != nil {
		return m, err
	}
	defer out.Close()
	m = echoes{make([]int64, 0, e.Laps), make([]int64, 0, e.Laps)}
	var one [1]byte
	for lap := range e.Laps {
		if lap > 0 || e.Process > 0 { // the first one begins
			if _, err := io.ReadFull(in, one[:]); err != nil {
				return m, err
			}
			m.Came = append(m.Came, monotonic())
		}
		if e.Hold > 0 {
			time.Sleep(e.Hold)
		}
		m.Sent = append(m.Sent, monotonic())
		if _, err := out.Write(one[:]); err != nil {
			return m, err
		}
	}
	if e.Process == 0 { // the answer to its last
		if _, err := io.ReadFull(in, one[:]); err != nil {
			return m, err
		}
		m.Came = append(m.Came, monotonic())
	}
	return m, nil
}
