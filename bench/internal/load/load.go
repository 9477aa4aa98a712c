// Package load asks HTTP servers as fast as they answer: a number of clients, each
// on a connection of its own that stays open, each sending its next request when it
// has the response to the last.
package load

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// Plan says what to do.
type Plan struct {
	Addrs   []string // of the servers; the clients are spread over them
	Path    string   // of the request
	Headers []string // more of them, such as "X-User: quiet"
	Clients int
	Line    int // bytes a second that each client's line carries; 0 is no limit

	// The clients first run until each has had an answer, and at least for
	// Warmup; at most for Patience. Then the window opens. With Impatient, it opens
	// after Warmup.
	Warmup    time.Duration
	Patience  time.Duration
	Impatient bool
	Window    time.Duration
}

// Outcome is the sum of all answers within the window.
type Outcome struct {
	Answers  int             // with status 200
	Total    int             // of those, with the ones before the window
	Others   int             // with another status
	Failures int             // no answer, or one that could not be read
	Failure  error           // the first of those
	Window   time.Duration   // as it was
	Settled  bool            // each client had an answer before the window
	Waits    []time.Duration // from request to response, sorted; only of status 200
}

// Values are the figures of the outcome. A run in which not every client had an
// answer in time does not count.
func (o *Outcome) Values() figures.Values {
	values := make(figures.Values)
	if failed := o.Failures + o.Others; failed > 0 {
		values[figures.Failed] = float64(failed)
		values[figures.Refused] = float64(o.Others) / o.Window.Seconds()
	}
	if !o.Settled {
		values[figures.Stalled] = 1
		return values
	}
	values[figures.Rate] = float64(o.Answers) / o.Window.Seconds()
	if o.Answers > 0 {
		values[figures.Median] = figures.Milliseconds(figures.Quantile(o.Waits, 0.5))
		values[figures.Late] = figures.Milliseconds(figures.Quantile(o.Waits, 0.99))
	}
	return values
}

// run is a plan being carried out.
type run struct {
	Plan
	request []byte
	clients []*client

	base          time.Time
	opens, closes atomic.Int64 // nanoseconds since base; of the window
	served        atomic.Int64 // clients that had an answer
	stopped       atomic.Bool
}

const never = int64(1) << 62

// Run carries out a plan.
func Run(ctx context.Context, p Plan) (*Outcome, error) {
	r, err := connect(ctx, p)
	defer r.close()
	if err != nil {
		return nil, err
	}
	var done sync.WaitGroup
	for _, c := range r.clients {
		done.Go(c.work)
	}
	settled := r.conduct(ctx)
	r.close()
	done.Wait()
	return r.collect(settled), ctx.Err()
}

// Gather sends one request on each of n connections and waits for no answer. The
// function it returns, also with an error, closes them.
func Gather(ctx context.Context, p Plan) (disperse func(), err error) {
	r, err := connect(ctx, p)
	for _, c := range r.clients {
		if err == nil {
			_, err = c.conn.Write(r.request)
		}
	}
	return r.close, err
}

// Once sends one request on a connection of its own.
func Once(ctx context.Context, addr, path string, limit time.Duration) (status int, took time.Duration, err error) {
	r, err := connect(ctx, Plan{Addrs: []string{addr}, Path: path, Clients: 1})
	defer r.close()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := r.clients[0].conn.SetDeadline(began.Add(limit)); err != nil {
		return 0, 0, err
	}
	status, err = r.clients[0].ask()
	return status, time.Since(began), err
}

// connect opens all connections, a few at a time: listen queues are short.
func connect(ctx context.Context, p Plan) (*run, error) {
	p.Patience = cmp.Or(p.Patience, 30*time.Second)
	lines := slices.Concat([]string{"GET " + cmp.Or(p.Path, "/") + " HTTP/1.1", "Host: " + p.Addrs[0], "User-Agent: bench"}, p.Headers)
	r := &run{Plan: p, base: time.Now(), clients: make([]*client, p.Clients), request: []byte(strings.Join(lines, "\r\n") + "\r\n\r\n")}
	r.opens.Store(never)
	r.closes.Store(never)
	var dials errgroup.Group
	dials.SetLimit(64)
	for i := range r.clients {
		dials.Go(func() error {
			conn, err := dial(ctx, r.Addrs[i%len(r.Addrs)], r.Line)
			if err != nil {
				return fmt.Errorf("connecting: %w", err)
			}
			r.clients[i] = &client{run: r, conn: conn, reader: bufio.NewReader(conn)}
			return nil
		})
	}
	err := dials.Wait()
	r.clients = slices.DeleteFunc(r.clients, func(c *client) bool { return c == nil })
	return r, err
}

// close ends all connections. Errors of clients no longer count.
func (r *run) close() {
	r.stopped.Store(true)
	for _, c := range r.clients {
		_ = c.conn.Close()
	}
}

// conduct opens and closes the window at the right times.
func (r *run) conduct(ctx context.Context) (settled bool) {
	Sleep(ctx, r.Warmup)
	for settled = r.allServed(); !settled && time.Since(r.base) < r.Patience && ctx.Err() == nil; settled = r.allServed() {
		Sleep(ctx, 10*time.Millisecond)
	}
	r.opens.Store(int64(time.Since(r.base)))
	Sleep(ctx, r.Window)
	r.closes.Store(int64(time.Since(r.base)))
	return settled
}

func (r *run) allServed() bool { return r.Impatient || int(r.served.Load()) >= r.Clients }

// Sleep waits for a while, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (r *run) collect(settled bool) *Outcome {
	o := &Outcome{Settled: settled, Window: time.Duration(r.closes.Load() - r.opens.Load())}
	for _, c := range r.clients {
		o.Answers += len(c.waits)
		o.Others += c.others
		o.Total += c.total
		if c.failure != nil {
			o.Failures++
			o.Failure = cmp.Or(o.Failure, c.failure)
		}
		o.Waits = append(o.Waits, c.waits...)
	}
	slices.Sort(o.Waits)
	return o
}
