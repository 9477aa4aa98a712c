//go:build unix

package integration_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

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
