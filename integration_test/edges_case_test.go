//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// edgeCase is one case of [TestEdges]: a configuration, and clients for it. It is plain
// data, so that it can be printed. Times are in milliseconds. Zero values leave a feature out.
type edgeCase struct {
	Seed      uint64
	Processes int // on one directory, 1 or 2
	Queues    []edgeQueue
	Caddyfile string
	Clients   []edgeClient
	Reload    int // that long after the start
}

// edgeQueue is the settings that all lines of a queue share.
type edgeQueue struct {
	Timeout      int
	HoldTimeout  int
	QueueLength  int
	Concurrency  int
	Readers      bool // shared_methods GET
	Cancel       bool // on_disconnect cancel
	Buffer       string
	ResponseSize string // response_buffer
}

// edgeClient is a client and its request.
type edgeClient struct {
	Start   int
	Process int // that it asks
	HTTP2   bool
	Method  string // default GET
	Path    string
	Fail    bool // asks the configuration for an error
	Body    int  // bytes
	Chunked bool
	Cut     int    // after so many bytes, the body stops
	Pause   int    // for so long; 0 is for good
	Garbage bool   // at the cut it sends what is no chunk, and waits for the answer
	HangUp  string // at a time, when it reaches the upstream, or does so from an "error hit"
	After   int    // and so much later
	Reset   bool   // it hangs up with a reset
	Read    string // of the answer: slow, never, or as it comes
	Limit   int    // it hangs up then, whatever has happened; 0 waits for the answer
	Steps   []edgeStep
}

// edgeStep is what the upstream does with one hit of a request. It may fail (answer 503),
// break the connection instead of answering, or after half of the answer, send some hundred
// kilobytes, stream more than all buffers take, or send events that never end.
type edgeStep struct {
	Work   int
	Do     string
	Deaf   bool // works to its end though it is cancelled
	Unread bool // answers without reading the request's body
}

// streams reports whether bodies are read inside.
func (q edgeQueue) streams() bool { return q.Buffer == "off" }

// limit is the longest body that the queue takes, in bytes.
func (q edgeQueue) limit() int {
	memory, disk := 64<<10, 256<<20
	if n, _ := fmt.Sscanf(q.Buffer, "%dKiB %dKiB", &memory, &disk); n > 0 {
		memory <<= 10
		if n == 2 {
			disk <<= 10
		}
	}
	return memory + disk
}

// edgeRule says who may be inside together.
type edgeRule struct {
	limit  int // 0 is none
	reader bool
}

// rule is that of a request's ticket.
func (q edgeQueue) rule(strict bool, method string) edgeRule {
	switch {
	case strict || q.Readers && method != "GET":
		return edgeRule{limit: 1}
	case q.Readers:
		return edgeRule{limit: q.Concurrency, reader: true}
	}
	return edgeRule{limit: max(q.Concurrency, 1)}
}

func (r edgeRule) alone() bool { return r.limit == 1 && !r.reader }

// admits reports whether somebody may enter with so many others inside.
func (r edgeRule) admits(others, readers int) bool {
	if r.reader && readers < others || !r.reader && readers > 0 {
		return false
	}
	return r.limit == 0 || others < r.limit
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }
func queueName(i int) string { return fmt.Sprintf("q%d_", i) }

// caddyfile is the text for a directory. Caddy does not load what it has loaded already, so
// each round has its own.
func (c *edgeCase) caddyfile(dir string, round int) string {
	return strings.NewReplacer("{$DIR}", dir, "{$ROUND}", fmt.Sprint(round)).Replace(c.Caddyfile)
}

// String is the case as a person reads it.
func (c *edgeCase) String() string {
	clients := strings.ReplaceAll(fmt.Sprintf("%+v", c.Clients), "} {", "}\n{")
	return fmt.Sprintf("%s\n%s\nreload %d\n-edges.seed %d\n", caddyfile.Format([]byte(c.Caddyfile)), clients, c.Reload, c.Seed)
}
