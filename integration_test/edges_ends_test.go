//go:build unix

package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// edgeAnswer is what became of a request.
type edgeAnswer struct {
	request string // its name
	client  edgeClient
	started time.Time
	whole   time.Time // just before the last of the body was sent; zero if it never was
	hungUp  time.Time // just before the client hung up; zero if it has not
	status  int
	err     error // why the answer did not come, or not whole
	ended   time.Time
}

// edgeCaller sends requests on one connection, and reads the answers.
type edgeCaller struct {
	edgeClient
	*edgeAnswer
	addr      string
	conn      *net.TCPConn
	transport *http.Transport
	arrived   <-chan *edgeHit
	gone      chan struct{} // closed when the client has hung up
	over      chan struct{} // closed when it has its answer
}

// run makes a client's request.
func (c edgeClient) run(name, addr string, u *edgeUpstream) *edgeAnswer {
	time.Sleep(ms(c.Start))
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return &edgeAnswer{request: name, client: c, err: err}
	}
	v := &edgeCaller{edgeClient: c, addr: addr, conn: conn.(*net.TCPConn)}
	if c.Read == "never" {
		_ = v.conn.SetReadBuffer(4 << 10)
	}
	v.transport = &http.Transport{
		Protocols: new(http.Protocols), WriteBufferSize: 1,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		// A client that does not read stops the server soon.
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
	}
	v.transport.Protocols.SetHTTP1(!c.HTTP2)
	v.transport.Protocols.SetUnencryptedHTTP2(c.HTTP2)
	defer conn.Close()
	defer v.transport.CloseIdleConnections()
	v.Method = cmp.Or(v.Method, http.MethodGet)
	v.edgeAnswer = &edgeAnswer{request: name, client: v.edgeClient, started: time.Now()}
	v.arrived, v.gone, v.over = u.expect(name, v.Steps), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var helpers sync.WaitGroup
	helpers.Go(func() { v.hangUpInTime(cancel) })
	v.err = v.exchange(ctx, &helpers)
	v.ended = time.Now()
	close(v.over)
	helpers.Wait()
	return v.edgeAnswer
}

func (v *edgeCaller) exchange(ctx context.Context, helpers *sync.WaitGroup) error {
	req, err := http.NewRequestWithContext(ctx, v.Method, "http://"+v.addr+v.Path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-Request", v.request)
	if v.Fail {
		req.Header.Set("X-Fail", "1")
	}
	if v.Body == 0 {
		v.whole = v.started
	} else {
		reader, writer := io.Pipe()
		defer reader.Close()
		helpers.Go(func() { _ = writer.CloseWithError(v.sendBody(writer)) })
		req.Body = reader
		if !v.Chunked {
			req.ContentLength = int64(v.Body)
		}
	}
	resp, err := v.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	v.status = resp.StatusCode
	return v.read(resp.Body)
}

func (v *edgeCaller) sendBody(w io.Writer) error {
	body := bytes.Repeat([]byte("x"), v.Body)
	if 0 < v.Cut && v.Cut < v.Body {
		if _, err := w.Write(body[:v.Cut]); err != nil {
			return err
		}
		if v.Garbage {
			_, _ = io.WriteString(v.conn, "no chunk\r\n")
		}
		select {
		case <-time.After(ms(cmp.Or(v.Pause, 5000))):
		case <-v.gone:
			return io.ErrClosedPipe
		case <-v.over:
			return io.ErrClosedPipe
		}
		if v.Pause == 0 {
			return io.ErrClosedPipe
		}
		body = body[v.Cut:]
	}
	if _, err := w.Write(body[:len(body)-1]); err != nil {
		return err
	}
	v.whole = time.Now()
	_, err := w.Write(body[len(body)-1:])
	return err
}

func (v *edgeCaller) read(answer io.Reader) error {
	if v.Read == "never" {
		<-v.gone
	}
	for piece := make([]byte, 32<<10); ; {
		_, err := answer.Read(piece)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if v.Read == "slow" {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// hangUpInTime hangs up when the client should. It returns when the client has ended.
func (v *edgeCaller) hangUpInTime(hangUp func()) {
	latest := time.After(cmp.Or(ms(v.Limit), wait.Patience))
	var due <-chan time.Time
	if v.HangUp == "time" {
		due = time.After(ms(v.After))
	}
	for waits := true; waits; {
		select {
		case hit := <-v.arrived:
			if v.HangUp == "hit" || v.HangUp == "error hit" && hit.inErrorRoute() {
				due = time.After(ms(v.After))
			}
		case <-due:
			waits = false
		case <-latest:
			waits = false
		case <-v.over:
			return
		}
	}
	if v.Reset {
		_ = v.conn.SetLinger(0)
	}
	v.hungUp = time.Now()
	hangUp()
	close(v.gone)
}

// edgeUpstream is what the queues of [TestEdges] protect. It notes every hit on the
// monotonic clock. Like a PHP script with ignore_user_abort, it may go on with its work
// when the proxy has cancelled the request.
type edgeUpstream struct {
	addr string

	mu     sync.Mutex
	hits   []*edgeHit
	inside int
	plans  map[string]*edgePlan // by request
}

// edgePlan says what is to be done with the hits of a request.
type edgePlan struct {
	steps   []edgeStep
	hits    int
	arrived chan *edgeHit // buffered
}

// edgeHit is one request's time in the upstream.
type edgeHit struct {
	request   string
	number    int      // among the hits of its request
	trail     []string // the marks of the configuration
	step      edgeStep
	entered   time.Time
	received  int64     // bytes of the body
	left      time.Time // when its work was done; noted before the end of the answer is sent
	cancelled time.Time // when the upstream noticed that; zero if it was not
}

// inErrorRoute reports whether it came from an error route.
func (v *edgeHit) inErrorRoute() bool { return strings.Contains(strings.Join(v.trail, " "), "!") }

func newEdgeUpstream(t testing.TB) *edgeUpstream {
	u := &edgeUpstream{plans: make(map[string]*edgePlan)}
	u.addr = testcaddy.Serve(t, u)
	return u
}

// expect says what is to be done with a request. The channel has its hits.
func (u *edgeUpstream) expect(request string, steps []edgeStep) (arrived <-chan *edgeHit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	plan := &edgePlan{steps: append(steps, edgeStep{}), arrived: make(chan *edgeHit, 100)}
	u.plans[request] = plan
	return plan.arrived
}

// take returns the hits, and forgets them and all plans.
func (u *edgeUpstream) take() (hits []*edgeHit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	hits, u.hits = u.hits, nil
	clear(u.plans)
	return hits
}

// idle reports whether nobody is inside.
func (u *edgeUpstream) idle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.inside == 0
}

func (u *edgeUpstream) enter(r *http.Request) *edgeHit {
	u.mu.Lock()
	defer u.mu.Unlock()
	v := &edgeHit{request: r.Header.Get("X-Request"), trail: r.Header.Values("X-Trail"), entered: time.Now()}
	if plan := u.plans[v.request]; plan != nil {
		v.step = plan.steps[min(plan.hits, len(plan.steps)-1)]
		v.number = plan.hits
		plan.hits++
		plan.arrived <- v
	}
	u.hits = append(u.hits, v)
	u.inside++
	return v
}

// leave ends a hit. Only the first call has an effect.
func (u *edgeUpstream) leave(v *edgeHit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if v.left.IsZero() {
		v.left = time.Now()
		u.inside--
	}
}

// ServeHTTP implements [http.Handler].
func (u *edgeUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := u.enter(r)
	defer u.leave(v)
	// On a connection that has been used, Caddy retries a request that breaks.
	w.Header().Set("Connection", "close")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		var err error
		if !v.step.Unread {
			v.received, err = io.Copy(io.Discard, r.Body)
		}
		if err != nil {
			cancel()
		}
	}()
	// It works from the headers on, while the body still comes.
	worked := time.After(ms(v.step.Work))
	select {
	case <-worked:
	case <-ctx.Done():
		v.cancelled = time.Now()
		if v.step.Deaf {
			<-worked
		}
	}
	select {
	case <-read:
	case <-ctx.Done():
	}
	if ctx.Err() != nil || !v.answer(ctx, w) {
		if v.cancelled.IsZero() {
			v.cancelled = time.Now()
		}
		panic(http.ErrAbortHandler)
	}
	u.leave(v)
	if v.step.Do == "break" || v.step.Do == "half" {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, "done")
}

// answer sends all but the end of the answer. It reports whether all of that was taken.
func (v *edgeHit) answer(ctx context.Context, w http.ResponseWriter) bool {
	size := map[string]int{"half": 1000, "some": 300 << 10, "stream": 24 << 20}[v.step.Do]
	switch v.step.Do {
	case "fail":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "half", "some", "stream":
		w.Header().Set("Content-Length", strconv.Itoa(size+len("done")))
		if _, err := w.Write(make([]byte, size)); err != nil {
			return false
		}
		return http.NewResponseController(w).Flush() == nil
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			_, err := io.WriteString(w, "data: event\n\n")
			if err != nil || http.NewResponseController(w).Flush() != nil {
				return false
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return false
			}
		}
	}
	return true
}
