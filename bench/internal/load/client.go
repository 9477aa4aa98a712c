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
	total   int
	others  int
	failure error
}

// work asks until it is stopped.
func (c *client) work() {
	served := false
	for !c.run.stopped.Load() {
		asked := int64(time.Since(c.run.base))
		status, err := c.ask()
		answered := int64(time.Since(c.run.base))
		if err != nil {
			if !c.run.stopped.Load() {
				c.failure = err
			}
			return
		}
		if !served {
			served = true
			c.run.served.Add(1)
		}
		if status == 200 {
			c.total++
		}
		if answered < c.run.opens.Load() || answered >= c.run.closes.Load() {
			continue
		}
		if status != 200 {
			c.others++
			continue
		}
		c.waits = append(c.waits, time.Duration(answered-asked))
	}
}

// ask sends a request and reads the response.
func (c *client) ask() (status int, err error) {
	if _, err := c.conn.Write(c.run.request); err != nil {
		return 0, fmt.Errorf("sending a request: %w", err)
	}
	have := 0
	for {
		n, err := c.conn.Read(c.buf[have:])
		if err != nil {
			return 0, fmt.Errorf("reading a response: %w", err)
		}
		have += n
		status, size, err := parse(c.buf[:have])
		switch {
		case err != nil:
			return 0, err
		case size > len(c.buf):
			return 0, fmt.Errorf("the response has %d bytes, more than %d", size, len(c.buf))
		case size == have:
			return status, nil
		case size > 0 && size < have:
			return 0, errors.New("more than one response to a request")
		case have == len(c.buf):
			return 0, fmt.Errorf("the head of the response has more than %d bytes", len(c.buf))
		}
	}
}

var (
	headEnd       = []byte("\r\n\r\n")
	contentLength = []byte("\r\ncontent-length:")
)

// parse reads a response so far. size is that of the whole response, or 0 if
// the head is not complete.
func parse(text []byte) (status, size int, err error) {
	end := bytes.Index(text, headEnd)
	if end < 0 {
		return 0, 0, nil
	}
	head := text[:end+2]
	if len(head) < len("HTTP/1.1 200") || !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) {
		return 0, 0, fmt.Errorf("not a response of HTTP/1.1: %.40q", head)
	}
	if status, err = strconv.Atoi(string(head[9:12])); err != nil {
		return 0, 0, fmt.Errorf("reading the status: %w", err)
	}
	length, err := bodyLength(head)
	return status, end + len(headEnd) + length, err
}

func bodyLength(head []byte) (int, error) {
	for i := range head {
		if head[i] != '\r' || len(head)-i < len(contentLength) || !bytes.EqualFold(head[i:i+len(contentLength)], contentLength) {
			continue
		}
		value, _, _ := bytes.Cut(head[i+len(contentLength):], []byte("\r"))
		length, err := strconv.Atoi(string(bytes.TrimSpace(value)))
		if err != nil || length < 0 {
			return 0, fmt.Errorf("reading the length of the response: %q", value)
		}
		return length, nil
	}
	return 0, errors.New("the response does not tell its length")
}
