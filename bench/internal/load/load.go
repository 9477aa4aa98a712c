// Package load asks HTTP servers as fast as they answer: a number of clients,
// each on a connection of its own that stays open, each sending its next request
// when it has the response to the last.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Plan says what to do.
type Plan struct {
	Addrs   []string // of the servers; the clients are spread over them
	Path    string   // of the request
	Clients int

	// The clients first run until each has had an answer, and at least for
	// Warmup; at most for Patience. Then the window opens.
	Warmup   time.Duration
	Patience time.Duration
	Window   time.Duration
}

// Outcome is what came of it within the window.
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

// Rate is answers a second.
func (o *Outcome) Rate() float64 { return float64(o.Answers) / o.Window.Seconds() }

// run is a plan being carried out.
type run struct {
	Plan
	request []byte

	opens   atomic.Int64 // nanoseconds since base; when the window opens and closes
	closes  atomic.Int64
	base    time.Time
	served  atomic.Int64 // clients that had an answer
	stopped atomic.Bool
}

const never = int64(1) << 62

// Run carries out a plan.
func Run(ctx context.Context, p Plan) (*Outcome, error) {
	r := newRun(p)
	clients, err := r.connect(ctx)
	defer r.closeAll(clients)
	if err != nil {
		return nil, err
	}
	var done sync.WaitGroup
	for _, c := range clients {
		done.Go(c.work)
	}
	settled := r.conduct(ctx)
	r.stopped.Store(true)
	r.closeAll(clients)
	done.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.collect(clients, settled), nil
}

func newRun(p Plan) *run {
	p.Patience = cmp.Or(p.Patience, 30*time.Second)
	r := &run{Plan: p, base: time.Now(),
		request: []byte("GET " + cmp.Or(p.Path, "/") + " HTTP/1.1\r\nHost: " + p.Addrs[0] + "\r\nUser-Agent: bench\r\n\r\n")}
	r.opens.Store(never)
	r.closes.Store(never)
	return r
}

// connect opens all connections, a few at a time: listen queues are short.
func (r *run) connect(ctx context.Context) ([]*client, error) {
	clients := make([]*client, r.Clients)
	errs := make([]error, r.Clients)
	slots := make(chan struct{}, 64)
	var done sync.WaitGroup
	for i := range clients {
		slots <- struct{}{}
		done.Go(func() {
			clients[i], errs[i] = r.dial(ctx, r.Addrs[i%len(r.Addrs)])
			<-slots
		})
	}
	done.Wait()
	connected := slices.DeleteFunc(clients, func(c *client) bool { return c == nil })
	return connected, errors.Join(errs...)
}

func (r *run) closeAll(clients []*client) {
	for _, c := range clients {
		_ = c.conn.Close()
	}
}

func (r *run) dial(ctx context.Context, addr string) (*client, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return &client{run: r, conn: conn}, nil
}

// conduct opens and closes the window at the right times.
func (r *run) conduct(ctx context.Context) (settled bool) {
	sleep(ctx, r.Warmup)
	for settled = r.allServed(); !settled && time.Since(r.base) < r.Patience && ctx.Err() == nil; settled = r.allServed() {
		sleep(ctx, 10*time.Millisecond)
	}
	r.opens.Store(int64(time.Since(r.base)))
	sleep(ctx, r.Window)
	r.closes.Store(int64(time.Since(r.base)))
	return settled
}

func (r *run) allServed() bool { return int(r.served.Load()) >= r.Clients }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (r *run) collect(clients []*client, settled bool) *Outcome {
	o := &Outcome{Settled: settled, Window: time.Duration(r.closes.Load() - r.opens.Load())}
	for _, c := range clients {
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
