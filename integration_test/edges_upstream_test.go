//go:build unix

package integration_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// edgeUpstream is what the queues of [TestEdges] protect. It notes every visit on the
// monotonic clock. Like a PHP script with ignore_user_abort, it may go on with its work
// when the proxy has cancelled the request.
type edgeUpstream struct {
	addr string

	mu     sync.Mutex
	visits []*edgeVisit
	inside int
	plans  map[string]*edgePlan // by request
}

// edgePlan says what is to be done with the visits of a request.
type edgePlan struct {
	steps   []edgeStep
	visits  int
	arrived chan *edgeVisit // buffered
}

// edgeVisit is one request's time in the upstream.
type edgeVisit struct {
	request   string
	number    int      // among the visits of its request
	trail     []string // the marks of the configuration
	step      edgeStep
	entered   time.Time
	received  int64     // bytes of the body
	left      time.Time // when its work was done; noted before the end of the answer is sent
	cancelled time.Time // when the upstream noticed that; zero if it was not
}

// inErrorRoute reports whether it came from an error route.
func (v *edgeVisit) inErrorRoute() bool { return strings.Contains(strings.Join(v.trail, " "), "!") }

func newEdgeUpstream(t testing.TB) *edgeUpstream {
	u := &edgeUpstream{plans: make(map[string]*edgePlan)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	u.addr = listener.Addr().String()
	server := &http.Server{Handler: u}
	// On a connection that has been used, Caddy retries a request that breaks.
	server.SetKeepAlivesEnabled(false)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		check(t, server.Close())
		serving.Wait()
	})
	return u
}

// expect says what is to be done with a request. The visits are told to arrived.
func (u *edgeUpstream) expect(request string, steps []edgeStep) (arrived <-chan *edgeVisit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	plan := &edgePlan{steps: steps, arrived: make(chan *edgeVisit, 16)}
	u.plans[request] = plan
	return plan.arrived
}

// take returns the visits, and forgets them and all plans.
func (u *edgeUpstream) take() (visits []*edgeVisit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	visits, u.visits = u.visits, nil
	clear(u.plans)
	return visits
}

// idle reports whether nobody is inside.
func (u *edgeUpstream) idle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.inside == 0
}

func (u *edgeUpstream) enter(r *http.Request) *edgeVisit {
	u.mu.Lock()
	defer u.mu.Unlock()
	v := &edgeVisit{
		request: r.Header.Get("X-Request"), trail: r.Header.Values("X-Trail"), step: edgeStep{Work: 1}, entered: time.Now(),
	}
	if plan := u.plans[v.request]; plan != nil {
		if len(plan.steps) > 0 {
			v.step = plan.steps[min(plan.visits, len(plan.steps)-1)]
		}
		v.number = plan.visits
		plan.visits++
		select {
		case plan.arrived <- v:
		default: // nobody reads so many
		}
	}
	u.visits = append(u.visits, v)
	u.inside++
	return v
}

// leave ends a visit. Only the first call has an effect.
func (u *edgeUpstream) leave(v *edgeVisit, cancelled bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !v.left.IsZero() {
		return
	}
	v.left = time.Now()
	u.inside--
	if cancelled && v.cancelled.IsZero() {
		v.cancelled = v.left
	}
}

// ServeHTTP implements [http.Handler].
func (u *edgeUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := u.enter(r)
	defer u.leave(v, false)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		if v.step.Unread {
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			cancel()
		}
		v.received = n
	}()
	// It works from the headers on, while the body still comes.
	if !u.work(ctx, v) {
		panic(http.ErrAbortHandler)
	}
	select {
	case <-read:
	case <-ctx.Done():
	}
	if ctx.Err() != nil || !u.answer(ctx, w, v) {
		u.leave(v, true)
		panic(http.ErrAbortHandler)
	}
	u.leave(v, false)
	_, _ = io.WriteString(w, "done")
}

// work takes its time. It reports whether the request is to be answered.
func (u *edgeUpstream) work(ctx context.Context, v *edgeVisit) bool {
	worked := time.After(ms(v.step.Work))
	select {
	case <-worked:
		return true
	case <-ctx.Done():
	}
	u.mu.Lock()
	v.cancelled = time.Now()
	u.mu.Unlock()
	if v.step.Deaf {
		<-worked
	}
	return false
}

// answer sends all but the end of the answer. It reports whether all of that was taken.
func (u *edgeUpstream) answer(ctx context.Context, w http.ResponseWriter, v *edgeVisit) bool {
	switch v.step.Do {
	case doFail:
		w.WriteHeader(http.StatusServiceUnavailable)
	case doBreak, doHalf:
		if v.step.Do == doHalf {
			w.Header().Set("Content-Length", "2000")
			_, _ = w.Write(make([]byte, 1000))
			_ = http.NewResponseController(w).Flush()
		}
		u.leave(v, false)
		panic(http.ErrAbortHandler)
	case doStream:
		return sendMuch(w, 24<<20)
	case doSome:
		return sendMuch(w, 300<<10)
	case doEvents:
		return sendEvents(ctx, w)
	}
	return true
}

// sendMuch sends the beginning of a large answer.
func sendMuch(w http.ResponseWriter, size int) bool {
	w.Header().Set("Content-Length", strconv.Itoa(size+len("done")))
	piece := make([]byte, 64<<10)
	for sent := 0; sent < size; {
		n, err := w.Write(piece[:min(len(piece), size-sent)])
		sent += n
		if err != nil {
			return false
		}
	}
	return true
}

// sendEvents sends events until it is cancelled, or nobody will come any more.
func sendEvents(ctx context.Context, w http.ResponseWriter) bool {
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
	return true
}
