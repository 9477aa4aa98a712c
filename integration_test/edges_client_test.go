//go:build unix

package integration_test

import (
	"bytes"
	"cmp"
	"context"
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
