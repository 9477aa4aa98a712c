//go:build unix

package once_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// refuser is an upstream that speaks HTTP/2 without TLS on one connection at a time. It answers the
// first stream of a connection when its gate opens, and refuses all others.
type refuser struct {
	addr string
	came chan struct{} // a request
	gate chan struct{}
}

func newRefuser(t *testing.T) *refuser {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	u := &refuser{listener.Addr().String(), make(chan struct{}, 10), make(chan struct{})}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			u.serve(conn)
		}
	}()
	return u
}

func (u *refuser) serve(conn net.Conn) {
	defer conn.Close()
	_, _ = io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface)))
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	var writing sync.Mutex
	var head bytes.Buffer
	_ = hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		writing.Lock()
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			u.came <- struct{}{}
			if frame.StreamID > 1 {
				_ = framer.WriteRSTStream(frame.StreamID, http2.ErrCodeRefusedStream)
				break
			}
			go func() {
				<-u.gate
				writing.Lock()
				defer writing.Unlock()
				_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true})
			}()
		}
		writing.Unlock()
	}
}

// A stream that an upstream refused closed the connection, which other requests use, too, if that was
// HTTP/2 without TLS. It was not known then what became of them.
func TestRefusedStream(t *testing.T) {
	t.Parallel()
	u := newRefuser(t)
	url := newSite(t, "once {\nscope none\n}\nreverse_proxy h2c://"+u.addr).url
	other := testcaddy.Send(t, http.MethodPost, url, "", "Idempotency-Key", "other")
	<-u.came
	if a := post(t, url, "", "refused"); a.StatusCode < 500 {
		t.Errorf("a refused stream: %v", a)
	}
	close(u.gate)
	testcaddy.Await(t, other).Want(t, 200)
}
