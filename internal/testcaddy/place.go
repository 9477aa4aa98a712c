package testcaddy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Place is what lies behind a queue: an upstream that notes who enters and
// leaves, and keeps each request until the test lets it go.
type Place struct {
	Addr string // host:port

	t       testing.TB
	entered chan *Visitor

	mu     sync.Mutex
	inside int
	most   int
}

// Visitor is a request that is inside.
type Visitor struct {
	Method string
	Name   string // of the request's path, without the slash
	Header http.Header
	Body   string

	leave chan struct{}
	once  sync.Once
	Gone  chan struct{} // closed when it has left
}

// NewPlace makes one, until the end of the test.
func NewPlace(t testing.TB) *Place {
	p := &Place{t: t, entered: make(chan *Visitor, 1000)}
	server := httptest.NewServer(p)
	p.Addr = strings.TrimPrefix(server.URL, "http://")
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return p
}

// ServeHTTP implements [http.Handler].
func (p *Place) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	v := &Visitor{
		Method: r.Method, Name: strings.TrimPrefix(r.URL.Path, "/"), Header: r.Header, Body: string(body),
		leave: make(chan struct{}), Gone: make(chan struct{}),
	}
	p.count(1)
	p.entered <- v
	defer close(v.Gone)
	defer p.count(-1)
	select {
	case <-v.leave:
		_, _ = io.WriteString(w, "served "+v.Name)
	case <-r.Context().Done():
	}
}

func (p *Place) count(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside += by
	p.most = max(p.most, p.inside)
}

// Most is how many were inside together at most.
func (p *Place) Most() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// Next waits for the next request to enter.
func (p *Place) Next() *Visitor {
	p.t.Helper()
	select {
	case v := <-p.entered:
		return v
	case <-time.After(Patience):
		p.t.Fatal("waited in vain for a request to enter")
		return nil
	}
}

// NextNamed waits for the next request to enter, which must have that name.
func (p *Place) NextNamed(name string) *Visitor {
	p.t.Helper()
	v := p.Next()
	if v.Name != name {
		p.t.Fatalf("%s entered; expected %s", v.Name, name)
	}
	return v
}

// Nobody makes sure that nobody else enters for a moment.
func (p *Place) Nobody() {
	p.t.Helper()
	select {
	case v := <-p.entered:
		p.t.Fatalf("%s entered; expected nobody", v.Name)
	case <-time.After(150 * time.Millisecond):
	}
}

// Leave lets a request go and returns when it has left the place.
func (v *Visitor) Leave() {
	v.once.Do(func() { close(v.leave) })
	<-v.Gone
}

// Answer is the response to a request that a test has sent.
type Answer struct {
	*http.Response
	Text string
	Err  error
}

// Send sends a request and gives its answer later.
func Send(t testing.TB, method, url, body string, header ...string) <-chan Answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answers := make(chan Answer, 1)
	go func() { answers <- do(r) }()
	return answers
}

func do(r *http.Request) Answer {
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Answer{Response: resp, Text: string(text), Err: err}
}

// Await waits for an answer.
func Await(t testing.TB, answers <-chan Answer) Answer {
	t.Helper()
	select {
	case a := <-answers:
		if a.Err != nil {
			t.Fatalf("sending a request: %v", a.Err)
		}
		return a
	case <-time.After(Patience):
		t.Fatal("waited in vain for an answer")
		return Answer{}
	}
}

// Get sends a request and waits for its answer.
func Get(t testing.TB, url string, header ...string) Answer {
	t.Helper()
	return Await(t, Send(t, http.MethodGet, url, "", header...))
}
