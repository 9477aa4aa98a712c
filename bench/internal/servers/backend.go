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
	return fmt.Sprintf("/%d/%d", hold, max(size, 2))
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

const answerHead = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "

// visitor is one connection to the backend, with what its last path told.
type visitor struct {
	net.Conn
	over   chan struct{}
	path   string
	hold   time.Duration
	answer []byte
}

func (p *place) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	v := &visitor{Conn: conn, over: make(chan struct{}, 1)}
	for requests := bufio.NewReader(conn); ; {
		path, err := readPath(requests)
		switch {
		case err != nil:
			return
		case path == mostPath:
			text := strconv.FormatInt(p.most.Swap(0), 10)
			_, err = fmt.Fprintf(conn, "%s%d\r\n\r\n%s", answerHead, len(text), text)
		case v.learn(path):
			p.admit(v)
			_, err = conn.Write(v.answer)
		}
		if err != nil {
			return
		}
	}
}

func (v *visitor) learn(path string) (ok bool) {
	if path == v.path {
		return true
	}
	size := 0
	if _, err := fmt.Sscanf(path, "/%d/%d", &v.hold, &size); err != nil {
		return false
	}
	v.path, v.answer = path, fmt.Appendf(nil, "%s%d\r\n\r\n%s", answerHead, size, strings.Repeat("ok", size)[:size])
	return true
}

// admit lets a request in, and out before it gets its answer: then the next may be
// sent in.
func (p *place) admit(v *visitor) {
	inside := p.inside.Add(1)
	for most := p.most.Load(); inside > most && !p.most.CompareAndSwap(most, inside); most = p.most.Load() {
	}
	switch {
	case v.hold >= time.Second:
		time.Sleep(v.hold)
	case v.hold > 0:
		p.pauses <- pause{time.Now().Add(v.hold), v.over}
		<-v.over
	}
	p.inside.Add(-1)
}

// readPath reads a request, which has no body, and returns its path.
func readPath(r *bufio.Reader) (path string, err error) {
	line, err := r.ReadSlice('\n') // such as "GET /500000/2 HTTP/1.1"
	if fields := bytes.Fields(line); len(fields) == 3 {
		path = string(fields[1])
	}
	for err == nil && len(bytes.TrimSpace(line)) > 0 {
		line, err = r.ReadSlice('\n')
	}
	return path, err
}
