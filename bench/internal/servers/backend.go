package servers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Backend is the upstream of the queue: it answers every GET with two bytes,
// after a time that the path tells, and notes how many were inside at once. It
// does next to nothing, so that what stands in front of it is measured.
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
	running, err := proc.Begin[struct{}](ctx, "backend", addr, nil)
	if err != nil {
		return nil, err
	}
	b := &Backend{Addr: addr, child: running.Child}
	return b, b.child.Await(ctx, func() error {
		_, err := b.Most(ctx)
		return err
	})
}

// Stop ends it.
func (b *Backend) Stop() { b.child.Stop() }

// Path is the request path that is answered after a time.
func Path(hold time.Duration) string { return "/" + strconv.FormatInt(int64(hold), 10) }

const mostPath = "/most"

// Most is how many requests were inside at once since it was last asked.
func (b *Backend) Most(ctx context.Context) (most int, err error) {
	text, err := get(ctx, "http://"+b.Addr+mostPath)
	if err != nil {
		return 0, err
	}
	return most, json.Unmarshal(text, &most)
}

// Settle waits until nobody comes any more: HAProxy goes on to send what is in
// its queue when the clients have gone.
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

func get(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
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
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return struct{}{}, nil
		}
		if err != nil {
			return struct{}{}, fmt.Errorf("accepting a connection: %w", err)
		}
		go p.serve(conn)
	}
}

// timekeeper ends the pauses on time. Timers of the runtime may be a
// millisecond late where nothing else happens. All short pauses of a run are
// equally long, so they end in the order they began.
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

var answer = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")

func (p *place) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	over := make(chan struct{}, 1)
	requests := bufio.NewReader(conn)
	for {
		path, err := readPath(requests)
		if err != nil {
			return
		}
		if path == mostPath {
			p.tellMost(conn)
		} else if !p.admit(conn, path, over) {
			return
		}
	}
}

// admit lets a request in, and out before it gets its answer: then the next may
// be sent in.
func (p *place) admit(conn net.Conn, path string, over chan struct{}) (ok bool) {
	nanoseconds, err := strconv.ParseInt(strings.TrimPrefix(path, "/"), 10, 64)
	if err != nil {
		return false
	}
	inside := p.inside.Add(1)
	for most := p.most.Load(); inside > most && !p.most.CompareAndSwap(most, inside); most = p.most.Load() {
	}
	switch hold := time.Duration(nanoseconds); {
	case hold >= time.Second:
		time.Sleep(hold)
	case hold > 0:
		p.pauses <- pause{time.Now().Add(hold), over}
		<-over
	}
	p.inside.Add(-1)
	_, err = conn.Write(answer)
	return err == nil
}

func (p *place) tellMost(conn net.Conn) {
	text := fmt.Sprint(p.most.Swap(0))
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

// readPath reads a request, which has no body, and returns its path.
func readPath(r *bufio.Reader) (path string, err error) {
	line, err := r.ReadSlice('\n') // such as "GET /500000 HTTP/1.1"
	if fields := bytes.Fields(line); len(fields) == 3 {
		path = string(fields[1])
	}
	for err == nil && len(bytes.TrimSpace(line)) > 0 {
		line, err = r.ReadSlice('\n')
	}
	return path, err
}
