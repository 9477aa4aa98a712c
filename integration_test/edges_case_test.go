//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// edgeCase is one case of [TestEdges]: a configuration, and clients for it. It
// is plain data, so that it can be printed, shrunk and run again.
type edgeCase struct {
	Seed      uint64
	Engine    string // file or memory
	Processes int    // on one directory, 1 or 2
	Queues    []edgeQueue
	Main      []edgeNode
	Errors    []edgeNode   `json:",omitempty"` // of handle_errors, if any
	Named     [][]edgeNode `json:",omitempty"` // routes
	Clients   []edgeClient
	Evictions []int `json:",omitempty"` // ms after the start
	Reloads   []int `json:",omitempty"` // ms after the start
}

// edgeQueue is a queue's serialize directive. Durations are in milliseconds;
// zero values leave the subdirective out.
type edgeQueue struct {
	Timeout       int
	HoldTimeout   int    `json:",omitempty"`
	QueueLength   int    `json:",omitempty"`
	Concurrency   int    `json:",omitempty"`
	SharedMethods string `json:",omitempty"`
	Cancel        bool   `json:",omitempty"` // on_disconnect cancel
	Buffer        string `json:",omitempty"`
	Response      bool   `json:",omitempty"` // an error_response
	ResponseSize  string `json:",omitempty"` // response_buffer
}

// edgeNode is a directive, or a block of them.
type edgeNode struct {
	Kind  string     // one of the constants below
	Queue int        `json:",omitempty"` // of serialize
	Path  string     `json:",omitempty"` // that a block matches, or that a rewrite leads to
	Named int        `json:",omitempty"` // the route that is invoked
	Nodes []edgeNode `json:",omitempty"`
}

const (
	nodeSerialize = "serialize" // a route that begins with serialize
	nodeRoute     = "route"
	nodeHandle    = "handle"
	nodeRewrite   = "rewrite" // and a route for where it leads
	nodeMissing   = "missing" // the same, if there is no such file
	nodeInvoke    = "invoke"
	nodeFail      = "fail" // an error, for requests that ask for one
	nodeProxy     = "proxy"
	nodeRecover   = "recover" // a proxy, and a route for answers of 5xx
	nodeDead      = "dead"    // a proxy to nowhere
	nodeRespond   = "respond"
)

// edgeClient is a client and its request. Times are in milliseconds.
type edgeClient struct {
	Start   int
	Process int  `json:",omitempty"` // that it asks
	HTTP2   bool `json:",omitempty"`
	Method  string
	Path    string
	Fail    bool   `json:",omitempty"` // asks the configuration for an error
	Body    int    `json:",omitempty"` // bytes
	Chunked bool   `json:",omitempty"`
	Cut     int    `json:",omitempty"` // after so many bytes, the body stops
	Pause   int    `json:",omitempty"` // for so long; 0 is for good
	Garbage bool   `json:",omitempty"` // at the cut it sends what is no chunk, and waits for the answer
	Extra   bool   `json:",omitempty"` // a byte more than the request
	HangUp  string `json:",omitempty"` // one of the constants below
	After   int    `json:",omitempty"` // and so much later
	Reset   bool   `json:",omitempty"` // it hangs up with a reset
	Read    string `json:",omitempty"` // of the answer: slow, never, or as it comes
	Limit   int    `json:",omitempty"` // it hangs up then, whatever has happened; 0 waits for the answer
	Again   bool   `json:",omitempty"` // then makes a plain request on the same connection
	Steps   []edgeStep
}

// When a client hangs up.
const (
	hangUpTime       = "time"        // counted from its start
	hangUpVisit      = "visit"       // when its request has reached the upstream
	hangUpErrorVisit = "error visit" // when it has reached it from an error route
)

// edgeStep is what the upstream does with one visit of a request; the last step
// applies to all further visits.
type edgeStep struct {
	Work   int    // ms
	Do     string `json:",omitempty"` // one of the constants below
	Deaf   bool   `json:",omitempty"` // works to its end though it is cancelled
	Unread bool   `json:",omitempty"` // answers without reading the request's body
}

const (
	doFail   = "fail"   // answers 503
	doBreak  = "break"  // closes the connection instead of answering
	doHalf   = "half"   // closes it in the middle of the answer
	doStream = "stream" // answers with more than all buffers take
	doSome   = "some"   // answers with some hundred kilobytes
)

const (
	streamSize = 24 << 20
	someSize   = 300 << 10
)

// The default of the body's second buffer, on disk.
const defaultDisk = 64 << 20

// limit is how much of a body comes before the ticket.
func (q edgeQueue) limit() int {
	memory, disk, two := strings.Cut(q.Buffer, " ")
	switch {
	case memory == "0" && !two:
		return 0
	case q.Buffer == "" || !two:
		return defaultDisk
	}
	return sizeOf(memory) + sizeOf(disk)
}

func sizeOf(text string) (n int) {
	var unit string
	_, _ = fmt.Sscanf(text, "%d%s", &n, &unit)
	switch unit {
	case "KiB":
		n <<= 10
	case "MiB":
		n <<= 20
	}
	return n
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func queueName(i int) string { return fmt.Sprintf("q%d_", i) }

// edgeText writes Caddyfiles with indentation.
type edgeText struct {
	strings.Builder
	depth     int
	unguarded bool // without serialize, but with its marks
}

func (e *edgeText) line(format string, args ...any) {
	if format == "}" {
		e.depth--
	}
	text := fmt.Sprintf(format, args...)
	e.WriteString(strings.Repeat("\t", e.depth) + text + "\n")
	if strings.HasSuffix(text, "{") {
		e.depth++
	}
}

// caddyfile is the configuration of a case. Behind every serialize, the request
// gets a mark in X-Trail: the queue and the token. The error routes begin with a
// mark, too. So the upstream can tell which queues a request has passed.
func (c *edgeCase) caddyfile(dir string, round int, unguarded bool) string {
	e := &edgeText{unguarded: unguarded}
	e.line("{")
	e.line("admin {$ADMIN}")
	e.line("persist_config off")
	e.line("auto_https off")
	e.line("log {")
	e.line("output stderr")
	e.line("format json")
	e.line("level WARN")
	e.line("}")
	e.line("servers {")
	e.line("protocols h1 h2c")
	e.line("}")
	e.line("}")
	for i, q := range c.Queues {
		e.queue(i, q, c.Engine, dir)
	}
	for i, nodes := range c.Named {
		e.line("&(n%d) {", i)
		e.matchers()
		e.block("route", nodes)
		e.line("}")
	}
	e.line("{$SITE} {")
	// Caddy does not load what it has loaded already.
	e.option(round > 0, "vars round %d", round)
	e.matchers()
	e.block("route", c.Main)
	if c.Errors != nil {
		e.line("handle_errors {")
		e.line("route {")
		e.line("request_header +X-Trail \"!{http.error.status_code}\"")
		e.nodes(c.Errors)
		e.line("}")
		e.line("}")
	}
	e.line("}")
	return e.String()
}

// matchers defines the matchers, which apply within one site or route.
func (e *edgeText) matchers() {
	e.line("@fail header X-Fail *")
	e.line("@missing not file")
}

func (e *edgeText) queue(i int, q edgeQueue, engine, dir string) {
	e.line("(q%d) {", i)
	if !e.unguarded {
		e.line("serialize {")
		e.line("path %s", dir)
		e.line("prefix %s", queueName(i))
		e.line("timeout %dms", q.Timeout)
		e.option(q.HoldTimeout > 0, "hold_timeout %dms", q.HoldTimeout)
		e.option(q.QueueLength > 0, "queue_length %d", q.QueueLength)
		e.option(q.Concurrency > 0, "concurrency %d", q.Concurrency)
		e.option(q.SharedMethods != "", "shared_methods %s", q.SharedMethods)
		e.option(q.Cancel, "on_disconnect cancel")
		e.option(q.Buffer != "", "buffer %s", q.Buffer)
		e.option(q.ResponseSize != "", "response_buffer %s", q.ResponseSize)
		e.option(q.Response, "error_response text/plain refused")
		e.option(engine != "file", "engine %s", engine)
		e.line("}")
	}
	e.line(`request_header +X-Trail "%s={http.serialize.token}"`, queueName(i))
	e.line("}")
}

func (e *edgeText) option(set bool, format string, args ...any) {
	if set {
		e.line(format, args...)
	}
}

func (e *edgeText) nodes(nodes []edgeNode) {
	for _, n := range nodes {
		e.node(n)
	}
}

func (e *edgeText) node(n edgeNode) {
	switch n.Kind {
	case nodeSerialize:
		e.line("route {")
		e.line("import q%d", n.Queue)
		e.nodes(n.Nodes)
		e.line("}")
	case nodeRoute:
		e.block(strings.TrimSpace("route "+n.Path), n.Nodes)
	case nodeHandle:
		e.line("%s {", strings.TrimSpace("handle "+n.Path))
		e.block("route", n.Nodes)
		e.line("}")
	case nodeRewrite, nodeMissing:
		matcher := "*"
		if n.Kind == nodeMissing {
			matcher = "@missing"
		}
		e.line("rewrite %s %s", matcher, n.Path)
		e.block("route "+n.Path, n.Nodes)
	case nodeInvoke:
		e.line("invoke n%d", n.Named)
	case nodeFail:
		e.line("error @fail 418")
	case nodeProxy:
		e.line("reverse_proxy {$UPSTREAM}")
	case nodeRecover:
		e.line("reverse_proxy {$UPSTREAM} {")
		e.line("@bad status 5xx")
		e.line("handle_response @bad {")
		e.block("route", n.Nodes)
		e.line("}")
		e.line("}")
	case nodeDead:
		e.line("reverse_proxy 127.0.0.1:1")
	case nodeRespond:
		e.line("respond responded")
	}
}

func (e *edgeText) block(head string, nodes []edgeNode) {
	e.line("%s {", head)
	e.nodes(nodes)
	e.line("}")
}

// String is the case as a person reads it, and as the flag -edges.case takes it.
func (c *edgeCase) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d process(es)\n\n%s\n", c.Seed, c.Processes, c.caddyfile("{$DIR}", 0, false))
	for i, client := range c.Clients {
		fmt.Fprintf(&b, "client %d: %s\n", i, asJSON(client))
	}
	if len(c.Evictions) > 0 {
		fmt.Fprintf(&b, "evictions at %v ms\n", c.Evictions)
	}
	if len(c.Reloads) > 0 {
		fmt.Fprintf(&b, "reloads at %v ms\n", c.Reloads)
	}
	fmt.Fprintf(&b, "\n-edges.case '%s'\n", asJSON(c))
	return b.String()
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}
