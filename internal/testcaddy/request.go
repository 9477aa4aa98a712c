package testcaddy

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Answer is the complete response to a request of a test, or the error. In case of an
// error, the response is empty.
type Answer struct {
	*http.Response
	Text string
	Err  error
}

// String returns the parts of an answer that tests print.
func (a Answer) String() string {
	if a.Err != nil {
		return a.Err.Error()
	}
	return fmt.Sprintf("%d %v %q", a.StatusCode, a.Header, a.Text)
}

// Want fails the test unless the answer has a status.
func (a Answer) Want(t testing.TB, status int) Answer {
	t.Helper()
	if a.Err != nil || a.StatusCode != status {
		t.Fatalf("answer: %v, want status %d", a, status)
	}
	return a
}

// Send sends a request and delivers its answer later. header is names and values in turn.
func Send(t testing.TB, method, url, body string, header ...string) <-chan Answer {
	t.Helper()
	r := newRequest(t, method, url, body, header...)
	answers := make(chan Answer, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: StayHere}
	go func() { answers <- Do(client, r) }()
	return answers
}

// newRequest makes a request. header is names and values in turn.
func newRequest(t testing.TB, method, url, body string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	SetHeader(r, header)
	return r
}

// SetHeader sets the fields of a header, which is names and values in turn, and may have Host.
func SetHeader(r *http.Request, header []string) {
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	r.Host = cmp.Or(r.Header.Get("Host"), r.Host)
}

// StayHere keeps an [http.Client] from following redirects.
func StayHere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Do sends a request and reads its answer to the end.
func Do(client *http.Client, r *http.Request) Answer {
	resp, err := client.Do(r)
	if err != nil {
		return Answer{Response: new(http.Response), Err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Answer{resp, string(text), err}
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
	case <-time.After(wait.Patience):
		t.Fatal("waited in vain for an answer")
		return Answer{}
	}
}

// Get sends a request and waits for its answer.
func Get(t testing.TB, url string, header ...string) Answer {
	t.Helper()
	return Await(t, Send(t, http.MethodGet, url, "", header...))
}
