package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"time"

	"github.com/valyala/fasthttp"
)

// client is one connection and what was heard on it.
type client struct {
	run    *run
	conn   net.Conn
	reader *bufio.Reader
	header fasthttp.ResponseHeader

	waits   []time.Duration
	served  bool
	total   int
	others  int
	failure error
}

// work asks until it is stopped.
func (c *client) work() {
	for !c.run.stopped.Load() {
		asked := time.Since(c.run.base)
		status, err := c.ask()
		answered := time.Since(c.run.base)
		if err != nil {
			if !c.run.stopped.Load() {
				c.failure = err
			}
			return
		}
		if !c.served {
			c.served = true
			c.run.served.Add(1)
		}
		counts := int64(answered) >= c.run.opens.Load() && int64(answered) < c.run.closes.Load()
		switch {
		case status == 200 && counts:
			c.waits = append(c.waits, answered-asked)
			fallthrough
		case status == 200:
			c.total++
		case counts:
			c.others++
		}
	}
}

// ask sends a request and reads the response.
func (c *client) ask() (status int, err error) {
	if _, err := c.conn.Write(c.run.request); err != nil {
		return 0, fmt.Errorf("sending a request: %w", err)
	}
	return readResponse(&c.header, c.reader)
}

// readResponse reads a response to its end. It keeps nothing of the body: the client
// shares the machine with the server.
func readResponse(header *fasthttp.ResponseHeader, r *bufio.Reader) (status int, err error) {
	if err := header.Read(r); err != nil {
		return 0, fmt.Errorf("reading a response: %w", err)
	}
	switch length := header.ContentLength(); {
	case !header.IsHTTP11():
		return 0, errors.New("not a response of HTTP/1.1")
	case length >= 0:
		_, err = r.Discard(length)
	case length == chunked:
		if _, err = io.Copy(io.Discard, httputil.NewChunkedReader(r)); err == nil {
			err = header.ReadTrailer(r)
		}
	default:
		return 0, errors.New("the response does not tell its length")
	}
	if err != nil {
		return 0, fmt.Errorf("reading the body of a response: %w", err)
	}
	return header.StatusCode(), nil
}

const chunked = -1 // as fasthttp has it
