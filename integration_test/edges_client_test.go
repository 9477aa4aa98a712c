//go:build unix

package integration_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// edgeAnswer is what became of a request.
type edgeAnswer struct {
	request string // its name
	client  edgeClient
	port    int // of the client
	started time.Time
	whole   time.Time // just before the last of the body was sent; zero if it never was
	hungUp  time.Time // just before the client hung up; zero if it has not
	status  int
	err     error // why the answer did not come, or not whole
	ended   time.Time
}

// edgeVisitor sends a request and reads the answer.
type edgeVisitor struct {
	edgeClient
	answer  *edgeAnswer
	addr    string
	arrived <-chan *edgeVisit
	gone    chan struct{} // closed when the client has hung up
	ended   chan struct{} // closed when it has its answer
	helpers sync.WaitGroup
}

// edgeConn is a connection of a client.
type edgeConn interface {
	// ask sends a request and reads the answer. The body may be sent later.
	ask(v *edgeVisitor) error
	hangUp(v *edgeVisitor)
	port() int
	close()
}

// run makes a client's requests.
func (c edgeClient) run(name, addr string, u *edgeUpstream) []*edgeAnswer {
	time.Sleep(ms(c.Start))
	connect := newEdgeHTTP1
	if c.HTTP2 {
		connect = newEdgeHTTP2
	}
	conn, err := connect(addr)
	if err != nil {
		return []*edgeAnswer{{request: name, client: c, err: err}}
	}
	defer conn.close()
	first := c.ask(conn, name, addr, u)
	if !c.Again || first.err != nil || first.whole.IsZero() || !first.hungUp.IsZero() {
		return []*edgeAnswer{first}
	}
	plain := edgeClient{HTTP2: c.HTTP2, Path: c.Path, Fail: c.Fail, Steps: c.Steps}
	return []*edgeAnswer{first, plain.ask(conn, name+"again", addr, u)}
}

func (c edgeClient) ask(conn edgeConn, name, addr string, u *edgeUpstream) *edgeAnswer {
	c.Method = cmp.Or(c.Method, http.MethodGet)
	v := &edgeVisitor{
		edgeClient: c, addr: addr, arrived: u.expect(name, c.Steps), gone: make(chan struct{}), ended: make(chan struct{}),
		answer: &edgeAnswer{request: name, client: c, started: time.Now()},
	}
	if c.Body == 0 {
		v.answer.whole = v.answer.started
	}
	v.helpers.Go(func() { v.hangUpInTime(conn) })
	v.answer.err = conn.ask(v)
	v.answer.ended = time.Now()
	close(v.ended)
	if !c.Again {
		conn.close()
	}
	v.helpers.Wait()
	v.answer.port = conn.port()
	return v.answer
}

// hangUpInTime hangs up when the client should. It returns when the client has ended.
func (v *edgeVisitor) hangUpInTime(conn edgeConn) {
	limit := wait.Patience
	if v.Limit > 0 || v.Read == "never" {
		limit = ms(cmp.Or(v.Limit, 1000))
	}
	latest := time.After(limit)
	var due <-chan time.Time
	if v.HangUp == hangUpTime {
		due = time.After(ms(v.After))
	}
	arrived := v.arrived
	for {
		select {
		case visit := <-arrived:
			if v.HangUp == hangUpVisit || v.HangUp == hangUpErrorVisit && visit.inErrorRoute() {
				due, arrived = time.After(ms(v.After)), nil
			}
			continue
		case <-due:
		case <-latest:
		case <-v.ended:
			return
		}
		v.answer.hungUp = time.Now()
		conn.hangUp(v)
		close(v.gone)
		return
	}
}

// pieces sends the body. The last piece is not empty.
func (v *edgeVisitor) pieces(send func(piece []byte, last bool) error) error {
	body := bytes.Repeat([]byte("x"), v.Body)
	if 0 < v.Cut && v.Cut < v.Body {
		if err := send(body[:v.Cut], false); err != nil || v.Garbage {
			return err
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
	v.answer.whole = time.Now()
	return send(body, true)
}

// read reads an answer.
func (v *edgeVisitor) read(resp *http.Response) error {
	defer resp.Body.Close()
	v.answer.status = resp.StatusCode
	if v.Read == "never" {
		<-v.gone
	}
	piece := make([]byte, 32<<10)
	for {
		_, err := resp.Body.Read(piece)
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

type edgeHTTP1 struct {
	*net.TCPConn
	reader *bufio.Reader
	closes bool // the last answer was the last
}

func newEdgeHTTP1(addr string) (edgeConn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &edgeHTTP1{TCPConn: conn.(*net.TCPConn), reader: bufio.NewReader(conn)}, nil
}

func (c *edgeHTTP1) port() int { return c.LocalAddr().(*net.TCPAddr).Port }

func (c *edgeHTTP1) close() { _ = c.Close() }

func (c *edgeHTTP1) hangUp(v *edgeVisitor) {
	if v.Reset {
		_ = c.SetLinger(0)
	}
	_ = c.Close()
}

func (c *edgeHTTP1) ask(v *edgeVisitor) error {
	if c.closes {
		return nil
	}
	if v.Read == "never" {
		_ = c.SetReadBuffer(4 << 10)
	}
	v.helpers.Go(func() { _ = c.send(v) })
	for {
		if v.Read == "never" {
			<-v.gone // what comes fits in the buffers of the kernel
		}
		resp, err := http.ReadResponse(c.reader, &http.Request{Method: v.Method})
		if err != nil {
			return err
		}
		if resp.StatusCode >= 200 {
			c.closes = resp.Close
			return v.read(resp)
		}
	}
}

func (c *edgeHTTP1) send(v *edgeVisitor) error {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", v.Method, cmp.Or(v.Path, "/"), v.addr)
	for name, values := range v.header() {
		head += name + ": " + values[0] + "\r\n"
	}
	end := ""
	if v.Extra {
		end = "G"
	}
	switch {
	case v.Body == 0:
		_, err := io.WriteString(c, head+"\r\n"+end)
		return err
	case v.Chunked:
		head += "Transfer-Encoding: chunked\r\n"
		end = "0\r\n\r\n" + end
	default:
		head += fmt.Sprintf("Content-Length: %d\r\n", v.Body)
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return err
	}
	return v.pieces(func(piece []byte, last bool) error {
		text := string(piece)
		if v.Chunked {
			text = fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
		}
		if last {
			text += end
		} else if v.Garbage {
			text += "no chunk\r\n"
		}
		_, err := io.WriteString(c, text)
		return err
	})
}

func (v *edgeVisitor) header() http.Header {
	header := http.Header{"X-Request": {v.answer.request}}
	if v.Fail {
		header.Set("X-Fail", "1")
	}
	if v.Incremental {
		header.Set("Incremental", "?1")
	}
	return header
}

type edgeHTTP2 struct {
	*http.Transport
	local  net.Addr
	ctx    context.Context
	cancel context.CancelFunc
}

// newEdgeHTTP2 speaks HTTP/2 without TLS. Its windows are small, so that a client that does
// not read stops the server soon.
func newEdgeHTTP2(addr string) (edgeConn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &edgeHTTP2{local: conn.LocalAddr(), Transport: &http.Transport{
		Protocols:   new(http.Protocols),
		HTTP2:       &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	c.Protocols.SetUnencryptedHTTP2(true)
	c.ctx, c.cancel = context.WithTimeout(context.Background(), wait.Patience)
	return c, nil
}

func (c *edgeHTTP2) port() int { return c.local.(*net.TCPAddr).Port }

func (c *edgeHTTP2) hangUp(*edgeVisitor) { c.cancel() }

func (c *edgeHTTP2) close() {
	c.cancel()
	c.CloseIdleConnections()
}

func (c *edgeHTTP2) ask(v *edgeVisitor) error {
	req, err := http.NewRequestWithContext(c.ctx, v.Method, "http://"+v.addr+v.Path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header = v.header()
	if v.Body > 0 {
		reader, writer := io.Pipe()
		defer reader.Close()
		v.helpers.Go(func() {
			_ = writer.CloseWithError(v.pieces(func(piece []byte, _ bool) error {
				_, err := writer.Write(piece)
				return err
			}))
		})
		req.Body = reader
		if !v.Chunked {
			req.ContentLength = int64(v.Body)
		}
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		return err
	}
	return v.read(resp)
}
