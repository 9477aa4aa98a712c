package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// client is one connection and what was heard on it.
type client struct {
	run    *run
	conn   net.Conn
	reader *bufio.Reader

	waits   []time.Duration
	served  bool
	total   int
	others  int
	failure error
}

func newClient(r *run, conn net.Conn) *client {
	return &client{run: r, conn: conn, reader: bufio.NewReader(conn)}
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
	return readResponse(c.reader)
}

// The length of a response that comes in chunks, or that is not known yet.
const (
	chunked = -1
	unknown = -2
)

var (
	contentLength    = []byte("content-length:")
	transferEncoding = []byte("transfer-encoding:")
)

// readResponse reads a response to its end. It allocates nothing where the length
// is known: the client shares the machine with the server.
func readResponse(r *bufio.Reader) (status int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, fmt.Errorf("reading a response: %w", err)
	}
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, fmt.Errorf("not a response of HTTP/1.1: %.40q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, fmt.Errorf("reading the status: %w", err)
	}
	length, err := readHeader(r, unknown)
	switch {
	case err != nil:
		return 0, err
	case length == chunked:
		if _, err = io.Copy(io.Discard, httputil.NewChunkedReader(r)); err == nil {
			_, err = readHeader(r, chunked) // the trailer
		}
	default:
		_, err = r.Discard(length)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the body of a response: %w", err)
	}
	return status, nil
}

// readHeader reads to the empty line, and returns what it says of the length.
func readHeader(r *bufio.Reader, length int) (int, error) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, fmt.Errorf("reading the header of a response: %w", err)
		}
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 && length == unknown:
			return 0, errors.New("the response does not tell its length")
		case len(line) == 0:
			return length, nil
		case hasName(line, transferEncoding):
			length = chunked
		case hasName(line, contentLength):
			text := bytes.TrimSpace(line[len(contentLength):])
			if length, err = strconv.Atoi(string(text)); err != nil || length < 0 {
				return 0, fmt.Errorf("reading the length of the response: %q", line)
			}
		}
	}
}

func hasName(line, name []byte) bool {
	return len(line) >= len(name) && bytes.EqualFold(line[:len(name)], name)
}
