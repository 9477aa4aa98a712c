//go:build unix

package integration_test

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// edgeCase is one case of [TestEdges]: a configuration, and clients for it. It is plain
// data, so that it can be printed. Times are in milliseconds. Zero values leave a feature out.
type edgeCase struct {
	Seed      uint64
	Engine    string
	Processes int // on one directory, 1 or 2
	Queues    []edgeQueue
	Main      []edgeNode
	Errors    []edgeNode   // of handle_errors
	Named     [][]edgeNode // routes
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

// edgeNode is a directive, or a block of them. Its kind is serialize, off, route, handle,
// invoke, rewrite (with a route for where it leads), fail (for requests that ask for an
// error), proxy, dead (a proxy to nowhere) or recover (one with a route for answers of 5xx).
type edgeNode struct {
	Kind   string
	Queue  int    // of serialize
	Strict bool   // this line of the queue lets nobody in beside
	Path   string // that it matches, or that a rewrite leads to
	Named  int    // the route that is invoked
	Nodes  []edgeNode
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
	HangUp  string // at a time, when it visits the upstream, or does so from an "error visit"
	After   int    // and so much later
	Reset   bool   // it hangs up with a reset
	Read    string // of the answer: slow, never, or as it comes
	Limit   int    // it hangs up then, whatever has happened; 0 waits for the answer
	Steps   []edgeStep
}

// edgeStep is what the upstream does with one visit of a request. It may fail (answer 503),
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

// edgeText writes a Caddyfile. Behind every serialize, a request gets a mark in X-Trail: the
// line, the token and the wait. The error routes begin with a mark, too. So the upstream can tell
// which lines a request has passed.
type edgeText struct {
	strings.Builder
	c         *edgeCase
	dir       string
	unguarded bool // without serialize, but with its marks
}

func (c *edgeCase) caddyfile(dir string, round int, unguarded bool) string {
	e := &edgeText{c: c, dir: dir, unguarded: unguarded}
	e.line("{\nadmin {$ADMIN}\npersist_config off\nauto_https off")
	e.line("log {\noutput stderr\nlevel WARN\n}\nservers {\nprotocols h1 h2c\n}\n}")
	for i, nodes := range c.Named {
		e.block(fmt.Sprintf("&(n%d) {\n@fail header X-Fail *\nroute", i), nodes, "}")
	}
	// Caddy does not load what it has loaded already.
	e.block(fmt.Sprintf("{$SITE} {\nvars round %d\n@fail header X-Fail *\nroute", round), c.Main)
	if c.Errors != nil {
		e.block("handle_errors {\nroute", append([]edgeNode{{Kind: "mark"}}, c.Errors...), "}")
	}
	e.line("}")
	return e.String()
}

func (e *edgeText) line(format string, args ...any) { fmt.Fprintf(e, format+"\n", args...) }

func (e *edgeText) option(set bool, format string, args ...any) {
	if set {
		e.line(format, args...)
	}
}

func (e *edgeText) block(head string, nodes []edgeNode, end ...string) {
	e.line("%s {", head)
	for _, n := range nodes {
		e.node(n)
	}
	e.line("}")
	for _, text := range end {
		e.line("%s", text)
	}
}

func (e *edgeText) node(n edgeNode) {
	path := cmp.Or(n.Path, "*")
	switch n.Kind {
	case "mark":
		e.line(`request_header +X-Trail "!{http.error.status_code}={http.serialize.token}={http.serialize.queue}"`)
	case "serialize":
		e.serialize(n, path)
	case "off":
		e.option(!e.unguarded, "serialize %s off", path)
		e.line("request_header %s +X-Trail off", path)
	case "route":
		e.block("route "+path, n.Nodes)
	case "handle":
		e.block("handle "+path+" {\nroute", n.Nodes, "}")
	case "rewrite":
		e.block("rewrite * "+path+"\nroute "+path, n.Nodes)
	case "invoke":
		e.line("invoke n%d", n.Named)
	case "fail":
		e.line("error @fail 418")
	case "proxy":
		e.line("reverse_proxy {$UPSTREAM}")
	case "recover":
		e.block("reverse_proxy {$UPSTREAM} {\n@bad status 5xx\nhandle_response @bad {\nroute", n.Nodes, "}\n}")
	case "dead":
		e.line("reverse_proxy 127.0.0.1:1")
	}
}

func (e *edgeText) serialize(n edgeNode, path string) {
	q, kind := e.c.Queues[n.Queue], "lax"
	if n.Strict {
		q.Concurrency, q.Readers, kind = 1, false, "strict"
	}
	if !e.unguarded {
		e.line("serialize %s {\npath %s\nprefix %s", path, e.dir, queueName(n.Queue))
		e.line("timeout %dms\nhold_timeout %dms\nqueue_length %d", q.Timeout, q.HoldTimeout, q.QueueLength)
		e.option(q.Concurrency > 0, "concurrency %d", q.Concurrency)
		e.option(q.Readers, "shared_methods GET")
		e.option(q.Cancel, "on_disconnect cancel")
		e.option(q.Buffer != "", "buffer %s", q.Buffer)
		e.option(q.ResponseSize != "", "response_buffer %s", q.ResponseSize)
		e.option(e.c.Engine != "", "engine %s", e.c.Engine)
		e.line("}")
	}
	e.line(`request_header %s +X-Trail "%s={http.serialize.token}=%s={http.serialize.wait_ms}"`, path, kind, queueName(n.Queue))
}

// String is the case as a person reads it.
func (c *edgeCase) String() string {
	clients := strings.ReplaceAll(fmt.Sprintf("%+v", c.Clients), "} {", "}\n{")
	return fmt.Sprintf("%s\n%s\nreload %d\n-edges.seed %d\n", caddyfile.Format([]byte(c.caddyfile("{$DIR}", 0, false))), clients, c.Reload, c.Seed)
}
