//go:build unix

package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// edgeAnswer is what became of a client's request.
type edgeAnswer struct {
	request string // its name
	client  edgeClient
	started time.Time
	port    int // of the client
	status  int
	header  http.Header
	err     error // why the answer did not come, or not whole
	ended   time.Time
	next    *edgeAnswer // to its next request on the connection

	mu     sync.Mutex
	whole  time.Time // just before the last of the body was sent; zero if it never was
	hungUp time.Time // just before the client hung up; zero if it has not
}

func (a *edgeAnswer) sentWhole() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.whole = time.Now()
}

func (a *edgeAnswer) wholeAt() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.whole
}

func (a *edgeAnswer) hungUpAt() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hungUp
}

// edgeVisitor runs one client.
type edgeVisitor struct {
	edgeClient
	answer *edgeAnswer
	plan   *edgePlan
	addr   string

	ended chan struct{} // closed when the client has its answer
	hang  func()        // closes the connection, or ends the stream
}

func (c edgeClient) run(name, addr string, plan *edgePlan) *edgeAnswer {
	time.Sleep(ms(c.Start))
	v := &edgeVisitor{
		edgeClient: c, plan: plan, addr: addr, ended: make(chan struct{}),
		answer: &edgeAnswer{request: name, client: c, started: time.Now()},
	}
	if c.HTTP2 {
		v.overHTTP2()
	} else {
		v.overHTTP1()
	}
	v.answer.ended = time.Now()
	return v.answer
}

// hangUpInTime hangs up when the client should. It returns when the client has
// ended.
func (v *edgeVisitor) hangUpInTime() {
	limit := time.After(wait.Patience)
	if v.Limit > 0 {
		limit = time.After(ms(v.Limit))
	}
	var due <-chan time.Time
	if v.HangUp == hangUpTime {
		due = time.After(ms(v.After))
	}
	arrived := v.plan.arrived
	for {
		select {
		case visit := <-arrived:
			if v.HangUp == hangUpVisit || v.HangUp == hangUpErrorVisit && visit.inErrorRoute() {
				due, arrived = time.After(ms(v.After)), nil
			}
			continue
		case <-due:
		case <-limit:
		case <-v.ended:
			return
		}
		v.answer.mu.Lock()
		v.answer.hungUp = time.Now()
		v.answer.mu.Unlock()
		v.hang()
		<-v.ended
		return
	}
}

// pieces sends the body. The last piece is the empty one that ends it.
func (v *edgeVisitor) pieces(send func(piece []byte, last bool) error) error {
	body := bytes.Repeat([]byte("x"), v.Body)
	if v.Cut > 0 {
		if err := send(body[:v.Cut], false); err != nil {
			return err
		}
		if v.Garbage {
			return nil
		}
		var goOn <-chan time.Time
		if v.Pause > 0 {
			goOn = time.After(ms(v.Pause))
		}
		select {
		case <-goOn:
		case <-v.ended:
			return io.ErrClosedPipe
		}
		body = body[v.Cut:]
	}
	if n := len(body) - 1; n > 0 {
		if err := send(body[:n], false); err != nil {
			return err
		}
		body = body[n:]
	}
	v.answer.sentWhole()
	return send(body, true)
}

func (v *edgeVisitor) overHTTP1() {
	conn, err := net.Dial("tcp", v.addr)
	if err != nil {
		v.answer.err = err
		return
	}
	defer conn.Close()
	tcp := conn.(*net.TCPConn)
	v.answer.port = tcp.LocalAddr().(*net.TCPAddr).Port
	if v.Read == "never" {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	v.hang = func() {
		if v.Reset {
			_ = tcp.SetLinger(0)
		}
		_ = tcp.Close()
	}
	var hanger, writer sync.WaitGroup
	hanger.Go(v.hangUpInTime)
	writer.Go(func() { _ = v.writeHTTP1(conn) })
	reader := bufio.NewReader(conn)
	closes := v.readHTTP1(v.answer, reader)
	close(v.ended)
	hanger.Wait()
	if v.Again && v.answer.err == nil && !closes && v.sentWhole() {
		v.askAgain(conn, reader)
	}
	_ = conn.Close()
	writer.Wait()
}

func (v *edgeVisitor) sentWhole() bool {
	return !v.answer.wholeAt().IsZero() && v.answer.hungUpAt().IsZero()
}

func (v *edgeVisitor) head(name, method string) string {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nX-Request: %s\r\n", method, v.Path, v.addr, name)
	if v.Fail {
		head += "X-Fail: 1\r\n"
	}
	return head
}

func (v *edgeVisitor) writeHTTP1(conn net.Conn) error {
	head := v.head(v.answer.request, v.Method)
	extra := ""
	if v.Extra {
		extra = "G"
	}
	if v.Body == 0 {
		v.answer.sentWhole()
		_, err := io.WriteString(conn, head+"\r\n"+extra)
		return err
	}
	if v.Chunked {
		head += "Transfer-Encoding: chunked\r\n"
	} else {
		head += fmt.Sprintf("Content-Length: %d\r\n", v.Body)
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return err
	}
	return v.pieces(func(piece []byte, last bool) error {
		text := string(piece)
		if v.Chunked {
			text = fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
		}
		switch {
		case v.Garbage:
			text += "no chunk\r\n"
		case last && v.Chunked:
			text += "0\r\n\r\n" + extra
		case last:
			text += extra
		}
		_, err := io.WriteString(conn, text)
		return err
	})
}

// readHTTP1 reads an answer. It reports whether the connection ends with it.
func (v *edgeVisitor) readHTTP1(a *edgeAnswer, reader *bufio.Reader) (closes bool) {
	for {
		if v.Read == "never" {
			// What comes fits in the buffers of the kernel.
			<-time.After(ms(v.Limit))
		}
		resp, err := http.ReadResponse(reader, &http.Request{Method: v.Method})
		if err != nil {
			a.err = err
			return true
		}
		if resp.StatusCode >= 200 {
			v.readBody(a, resp)
			return resp.Close
		}
	}
}

func (v *edgeVisitor) readBody(a *edgeAnswer, resp *http.Response) {
	defer resp.Body.Close()
	a.status, a.header = resp.StatusCode, resp.Header
	piece := make([]byte, 32<<10)
	for {
		_, err := resp.Body.Read(piece)
		if err == io.EOF {
			return
		}
		if err != nil {
			a.err = err
			return
		}
		if v.Read == "slow" {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// askAgain makes a plain request on the same connection.
func (v *edgeVisitor) askAgain(conn net.Conn, reader *bufio.Reader) {
	_ = conn.SetDeadline(time.Now().Add(wait.Patience))
	next := &edgeAnswer{
		request: v.answer.request + "again", port: v.answer.port, started: time.Now(),
		client: edgeClient{Method: "GET", Path: v.Path, Fail: v.Fail, Steps: v.Steps},
	}
	next.sentWhole()
	v.answer.next = next
	if _, err := io.WriteString(conn, v.head(next.request, "GET")+"\r\n"); err != nil {
		next.err = err
		return
	}
	v.readHTTP1(next, reader)
	next.ended = time.Now()
}

// h2c is HTTP/2 without TLS. Its windows are small, so that a client that does
// not read stops the server soon.
func h2c() *http.Transport {
	transport := &http.Transport{
		Protocols: new(http.Protocols),
		HTTP2:     &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return transport
}

func (v *edgeVisitor) overHTTP2() {
	transport := h2c()
	dial := new(net.Dialer)
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial.DialContext(ctx, network, addr)
		if err == nil {
			v.answer.port = conn.LocalAddr().(*net.TCPAddr).Port
		}
		return conn, err
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	v.hang = cancel
	var helpers sync.WaitGroup
	helpers.Go(v.hangUpInTime)
	v.askHTTP2(ctx, transport, &helpers)
	close(v.ended)
	helpers.Wait()
	if v.Again && v.answer.err == nil && v.sentWhole() {
		v.askAgainHTTP2(transport)
	}
}

func (v *edgeVisitor) askHTTP2(ctx context.Context, transport *http.Transport, helpers *sync.WaitGroup) {
	var body io.Reader = http.NoBody
	if v.Body > 0 {
		reader, writer := io.Pipe()
		body = reader
		helpers.Go(func() {
			err := v.pieces(func(piece []byte, _ bool) error {
				_, err := writer.Write(piece)
				return err
			})
			_ = writer.CloseWithError(err)
		})
		defer reader.Close()
	} else {
		v.answer.sentWhole()
	}
	resp, err := v.roundTrip(ctx, transport, v.answer.request, v.Method, body)
	if err != nil {
		v.answer.err = err
		return
	}
	if v.Read == "never" {
		v.answer.status = resp.StatusCode
		<-ctx.Done()
	}
	v.readBody(v.answer, resp)
}

func (v *edgeVisitor) roundTrip(ctx context.Context, transport *http.Transport, name, method string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+v.addr+v.Path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Request", name)
	if v.Fail {
		req.Header.Set("X-Fail", "1")
	}
	if body != http.NoBody && !v.Chunked {
		req.ContentLength = int64(v.Body)
	}
	return transport.RoundTrip(req)
}

func (v *edgeVisitor) askAgainHTTP2(transport *http.Transport) {
	next := &edgeAnswer{
		request: v.answer.request + "again", port: v.answer.port, started: time.Now(),
		client: edgeClient{HTTP2: true, Method: "GET", Path: v.Path, Fail: v.Fail, Steps: v.Steps},
	}
	next.sentWhole()
	v.answer.next = next
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	resp, err := v.roundTrip(ctx, transport, next.request, "GET", http.NoBody)
	if err != nil {
		next.err = err
	} else {
		v.readBody(next, resp)
	}
	next.ended = time.Now()
}

// name reads better than the number of a request.
func (a *edgeAnswer) name() string { return "request " + strings.TrimPrefix(a.request, "r") }
