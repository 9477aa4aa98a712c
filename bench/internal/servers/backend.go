package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Backend is the upstream of the queue: it answers every GET after a time and with as
// many bytes as the path tells, and notes how many were inside at once. It does next
// to nothing, so that what stands in front of it is measured.
type Backend struct {
	Addr  string
	child *proc.Child
}

// StartBackend runs one.
func StartBackend(ctx context.Context) (*Backend, error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	child, err := proc.Begin(ctx, "backend", addr, new(bytes.Buffer), proc.Tracer{})
	if err != nil {
		return nil, err
	}
	b := &Backend{addr, child}
	return b, child.Await(ctx, func() error {
		_, err := b.Most(ctx)
		return err
	})
}

// Stop ends it.
func (b *Backend) Stop() { b.child.Stop() }

// Path is the request path that is answered after a time, with a body of a size.
func (b *Backend) Path(hold time.Duration, size int) string {
	return fmt.Sprintf("/?ns=%d&bytes=%d", hold, max(size, 2))
}

const mostPath = "/most"

// Most is how many requests were inside at once since it was last asked.
func (b *Backend) Most(ctx context.Context) (most int, err error) {
	err = get(ctx, b.Addr, mostPath, &most)
	return most, err
}

// Observe is Most as a figure.
func (b *Backend) Observe(ctx context.Context) (figures.Values, error) {
	most, err := b.Most(ctx)
	return figures.Values{figures.Inside: float64(most)}, err
}

// Settle waits until nobody comes any more: HAProxy goes on to send what is in its
// queue when the clients have gone.
func (b *Backend) Settle(ctx context.Context) error {
	for {
		most, err := b.Most(ctx)
		if err != nil || most == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settleTime):
		}
	}
}

// settleTime is longer than the longest time inside that is measured.
const settleTime = 100 * time.Millisecond

// get reads the JSON that a server answers with, unless nobody wants it.
func get(ctx context.Context, addr, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", r.URL, resp.Status)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func init() { proc.Role("backend", serveBackend) }

// place is the backend in its own process.
type place struct {
	inside, most atomic.Int64
	pauses       chan pause
}

// pause is a request that waits inside.
type pause struct {
	until time.Time
	over  chan struct{}
}

func serveBackend(ctx context.Context, addr string) (struct{}, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return struct{}{}, fmt.Errorf("starting the backend: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	p := &place{pauses: make(chan pause, 1<<16)}
	go p.timekeeper()
	server := &fasthttp.Server{Handler: p.serve, NoDefaultServerHeader: true, NoDefaultDate: true}
	return struct{}{}, server.Serve(listener)
}

// timekeeper ends the pauses on time. Timers of the runtime may be a millisecond late
// where nothing else happens. All short pauses of a run are equally long, so they end
// in the order they began.
func (p *place) timekeeper() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	for next := range p.pauses {
		if d := time.Until(next.until); d > 0 {
			sleepFor := unix.NsecToTimespec(int64(d))
			_ = unix.Nanosleep(&sleepFor, nil)
		}
		next.over <- struct{}{}
	}
}

// page is what answers are cut from.
var page = bytes.Repeat([]byte("ok"), 4<<20)

func (p *place) serve(r *fasthttp.RequestCtx) {
	if string(r.Path()) == mostPath {
		r.SetBodyString(strconv.FormatInt(p.most.Swap(0), 10))
		return
	}
	p.admit(time.Duration(r.QueryArgs().GetUintOrZero("ns")))
	r.Response.SetBodyRaw(page[:min(r.QueryArgs().GetUintOrZero("bytes"), len(page))])
}

// admit lets a request in, and out before it gets its answer: then the next may be
// sent in.
func (p *place) admit(hold time.Duration) {
	inside := p.inside.Add(1)
	for most := p.most.Load(); inside > most && !p.most.CompareAndSwap(most, inside); most = p.most.Load() {
	}
	switch {
	case hold >= time.Second:
		time.Sleep(hold)
	case hold > 0:
		over := make(chan struct{}, 1)
		p.pauses <- pause{time.Now().Add(hold), over}
		<-over
	}
	p.inside.Add(-1)
}
