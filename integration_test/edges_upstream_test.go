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

// edgeUpstream is what the queues of [TestEdges] protect. It notes every visit
// on the monotonic clock. Like a PHP script with ignore_user_abort, it may go on
// with its work when the proxy has cancelled the request.
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

// edgeVisit is one request's hold in the upstream.
type edgeVisit struct {
	request   string
	number    int      // among the visits of its request
	trail     []string // the marks of the configuration
	step      edgeStep
	entered   time.Time
	left      time.Time // when its work was done; noted before the end of the answer is sent
	cancelled time.Time // when the upstream noticed that; zero if it was not
}

// inErrorRoute reports whether it came from an error route.
func (v *edgeVisit) inErrorRoute() bool {
	for _, mark := range v.trail {
		if strings.HasPrefix(mark, "!") {
			return true
		}
	}
	return false
}

func newEdgeUpstream(t testing.TB) *edgeUpstream {
	u := &edgeUpstream{plans: make(map[string]*edgePlan)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	u.addr = listener.Addr().String()
	server := &http.Server{Handler: u}
	// On a connection that has been used, Caddy retries a request that breaks.
	server.SetKeepAlivesEnabled(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		check(t, server.Close())
		<-done
	})
	return u
}

// expect says what is to be done with a request.
func (u *edgeUpstream) expect(request string, steps []edgeStep) *edgePlan {
	u.mu.Lock()
	defer u.mu.Unlock()
	plan := &edgePlan{steps: steps, arrived: make(chan *edgeVisit, 16)}
	u.plans[request] = plan
	return plan
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
		v.step = plan.steps[min(plan.visits, len(plan.steps)-1)]
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

func (u *edgeUpstream) leave(v *edgeVisit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if v.left.IsZero() {
		v.left = time.Now()
		u.inside--
	}
}

func (u *edgeUpstream) cancel(v *edgeVisit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if v.left.IsZero() && v.cancelled.IsZero() {
		v.cancelled = time.Now()
	}
}

// ServeHTTP implements [http.Handler].
func (u *edgeUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := u.enter(r)
	defer u.leave(v)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		if v.step.Unread {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			cancel()
		}
	}()
	// It works from the headers on, while the body still comes.
	if !u.work(ctx, v) {
		panic(http.ErrAbortHandler)
	}
	select {
	case <-read:
	case <-ctx.Done():
		u.cancel(v)
		panic(http.ErrAbortHandler)
	}
	u.answer(w, v)
}

// work takes its time. It reports whether the request is to be answered.
func (u *edgeUpstream) work(ctx context.Context, v *edgeVisit) bool {
	worked := time.After(ms(v.step.Work))
	select {
	case <-worked:
		return true
	case <-ctx.Done():
		u.cancel(v)
	}
	if v.step.Deaf {
		<-worked
	}
	return false
}

func (u *edgeUpstream) answer(w http.ResponseWriter, v *edgeVisit) {
	switch v.step.Do {
	case doBreak:
		u.leave(v)
		panic(http.ErrAbortHandler)
	case doHalf:
		w.Header().Set("Content-Length", "2000")
		_, _ = w.Write(make([]byte, 1000))
		_ = http.NewResponseController(w).Flush()
		u.leave(v)
		panic(http.ErrAbortHandler)
	case doStream:
		u.send(w, v, streamSize)
	case doSome:
		u.send(w, v, someSize)
	case doFail:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	u.leave(v)
	_, _ = io.WriteString(w, "done")
}

// send sends the beginning of a large answer.
func (u *edgeUpstream) send(w http.ResponseWriter, v *edgeVisit, size int) {
	w.Header().Set("Content-Length", strconv.Itoa(size+len("done")))
	piece := make([]byte, 64<<10)
	for sent := 0; sent < size; {
		n, err := w.Write(piece[:min(len(piece), size-sent)])
		sent += n
		if err != nil {
			u.cancel(v)
			u.leave(v)
			panic(http.ErrAbortHandler)
		}
	}
}
