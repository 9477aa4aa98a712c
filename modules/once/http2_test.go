//go:build unix

package once_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// refuseSecond serves one connection of HTTP/2 without TLS. It refuses the second request, and
// answers the first one when the gate opens after that.
func refuseSecond(listener net.Listener, came chan<- bool, gate <-chan bool) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _ = io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface)))
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	var head bytes.Buffer
	_ = hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			_ = framer.WriteSettingsAck()
		}
		if _, ok := frame.(*http2.HeadersFrame); !ok {
			continue
		}
		came <- true
		if stream := frame.Header().StreamID; stream > 1 {
			_ = framer.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			<-gate
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true})
		}
	}
}

// A stream that an upstream refused closed the connection, which other requests use, too, if that was
// HTTP/2 without TLS. It was not known then what became of them.
func TestRefusedStream(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	came, gate := make(chan bool, 10), make(chan bool)
	go func() { _ = refuseSecond(listener, came, gate) }()
	url := newSite(t, "once {\nscope none\n}\nreverse_proxy h2c://"+listener.Addr().String()).url
	other := testcaddy.Send(t, http.MethodPost, url, "", "Idempotency-Key", "other")
	<-came
	if a := post(t, url, "", "refused"); a.StatusCode < 500 {
		t.Errorf("a refused stream: %v", a)
	}
	close(gate)
	testcaddy.Await(t, other).Want(t, 200)
}
