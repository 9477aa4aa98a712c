package load

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// client is one connection and what was heard on it.
type client struct {
	run  *run
	conn net.Conn
	buf  [4096]byte

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
	for have := 0; ; {
		n, err := c.conn.Read(c.buf[have:])
		if err != nil {
			return 0, fmt.Errorf("reading a response: %w", err)
		}
		have += n
		status, size, err := parse(c.buf[:have])
		switch {
		case err != nil:
			return 0, err
		case size == have:
			return status, nil
		case size > 0 && size < have:
			return 0, errors.New("more than one response to a request")
		case size > len(c.buf) || have == len(c.buf):
			return 0, fmt.Errorf("the response has more than %d bytes", len(c.buf))
		}
	}
}

var (
	headStart     = []byte("HTTP/1.1 ")
	headEnd       = []byte("\r\n\r\n")
	lineEnd       = []byte("\r\n")
	contentLength = []byte("content-length:")
)

// parse reads a response so far. size is that of the whole response, or 0 if
// the head is not complete.
func parse(text []byte) (status, size int, err error) {
	end := bytes.Index(text, headEnd)
	if end < 0 {
		return 0, 0, nil
	}
	line, head, _ := bytes.Cut(text[:end], lineEnd)
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, headStart) {
		return 0, 0, fmt.Errorf("not a response of HTTP/1.1: %.40q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, fmt.Errorf("reading the status: %w", err)
	}
	for len(head) > 0 {
		line, head, _ = bytes.Cut(head, lineEnd)
		if len(line) < len(contentLength) || !bytes.EqualFold(line[:len(contentLength)], contentLength) {
			continue
		}
		length, err := strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):])))
		if err != nil || length < 0 {
			return 0, 0, fmt.Errorf("reading the length of the response: %q", line)
		}
		return status, end + len(headEnd) + length, nil
	}
	return 0, 0, errors.New("the response does not tell its length")
}
