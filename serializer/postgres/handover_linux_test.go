package postgres

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderly-http/caddy-orderly/internal/testpostgres"
)

// long is for figures.
var long = flag.Bool("long", false, "measure longer")

// figures are the results of a measurement.
type figures struct {
	n           int
	median, p99 time.Duration
	rate        float64 // a second
}

func figuresOf(times []time.Duration, total time.Duration) figures {
	if len(times) == 0 { // the machine is busy
		return figures{}
	}
	slices.Sort(times)
	return figures{len(times), times[len(times)/2], times[len(times)*99/100], float64(len(times)) / total.Seconds()}
}

func (f figures) String() string {
	return fmt.Sprintf("%6d, median %9s, 99th percentile %9s, %6.0f/s", f.n, f.median.Round(time.Microsecond), f.p99.Round(time.Microsecond), f.rate)
}

// measureWrites measures committed inserts, with a pause before each, as a hand-over has.
func measureWrites(t *testing.T, server *testpostgres.Server, pause, d time.Duration) figures {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	must(t, err)
	defer conn.Close(context.Background())
	must(t, second(conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text)")))
	var times []time.Duration
	start := time.Now()
	for time.Since(start) < d {
		time.Sleep(pause)
		before := time.Now()
		must(t, second(conn.Exec(t.Context(), "INSERT INTO bare (text) VALUES ('value')")))
		times = append(times, time.Since(before))
	}
	return figuresOf(times, time.Since(start))
}

// measure has clients of engines hold the queue again and again, for a time. It measures how
// long nobody has it between two of them.
func measure(t *testing.T, engines []*engine, clients int, hold, d time.Duration) figures {
	t.Helper()
	var inside sync.Mutex
	var left time.Time
	var times []time.Duration
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for ctx.Err() == nil {
				turn, err := engines[i%len(engines)].Enter(ctx, arrivalFor(0))
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				now := time.Now()
				if !inside.TryLock() {
					t.Error("two are inside")
				} else {
					if !left.IsZero() {
						times = append(times, now.Sub(left))
					}
					time.Sleep(hold)
					left = time.Now()
					inside.Unlock()
				}
				turn.Leave()
			}
		})
	}
	group.Wait()
	return figuresOf(times, time.Since(start))
}

// TestHandOver prints how long nobody is inside, beside committed inserts of the same server
// in the same run.
func TestHandOver(t *testing.T) {
	d := 200 * time.Millisecond
	if *long {
		d = 5 * time.Second
	}
	server := testpostgres.Start(t, "fsync=on")
	pooler := testpostgres.StartPooler(t, server.Addr)
	for _, hold := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		write := measureWrites(t, server, hold, d)
		t.Logf("hold %4s: one committed insert               %s", hold, write)
		for _, many := range []struct{ clients, processes int }{{8, 1}, {2, 2}, {8, 2}, {8, 8}} {
			for name, url := range map[string]string{"direct": server.URL(), "pooled": pooler.URL()} {
				var engines []*engine
				for range many.processes {
					engines = append(engines, ready(t, url))
				}
				f := measure(t, engines, many.clients, hold, d)
				t.Logf("hold %4s: %d clients of %d processes, %s   %s; median %.2f writes", hold, many.clients, many.processes, name, f,
					f.median.Seconds()/write.median.Seconds())
				for _, e := range engines {
					must(t, e.Close())
				}
			}
		}
	}
}
