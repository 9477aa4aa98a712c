//go:build unix

package integration_test

import (
	"fmt"
	"math/rand/v2"
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

// edgeGenerator makes cases from a seed.
type edgeGenerator struct {
	*rand.Rand
	c         *edgeCase
	engine    string
	named     int // routes
	rewrites  int
	unguarded bool // serialize is left out, but not its marks
}

// In the Caddyfile, a request gets a mark in X-Trail behind every serialize: the line, the
// token and the wait. The error routes begin with a mark, too. So the upstream can tell which
// lines a request has passed.
func generateEdges(seed uint64, unguarded bool) *edgeCase {
	c := &edgeCase{Seed: seed, Processes: 1}
	g := &edgeGenerator{Rand: rand.New(rand.NewPCG(seed, 0)), c: c, unguarded: unguarded, engine: "file"}
	if g.chance(0.3) {
		g.engine = "memory"
	} else if g.chance(0.3) {
		c.Processes = 2
	}
	for range 1 + g.IntN(5)/3 {
		c.Queues = append(c.Queues, g.queue())
	}
	c.Caddyfile = "{\nadmin {$ADMIN}\npersist_config off\nauto_https off\n" +
		"log {\noutput stderr\nlevel WARN\n}\nservers {\nprotocols h1 h2c\n}\n}\n"
	const fail = "@fail header X-Fail *\nroute {\n"
	named := g.IntN(3)
	for i := range named {
		c.Caddyfile += fmt.Sprintf("&(n%d) {\n%s%s}\n}\n", i, fail, g.block(2, false))
	}
	g.named = named
	c.Caddyfile += "{$SITE} {\nvars round {$ROUND}\n" + fail
	if g.chance(0.8) {
		c.Caddyfile += g.serialize("")
	}
	c.Caddyfile += g.block(4, false) + "}\n"
	if g.chance(0.85) {
		c.Caddyfile += "handle_errors {\nroute {\nrequest_header +X-Trail \"!{http.error.status_code}={http.serialize.token}={http.serialize.queue}={http.serialize.reason}\"\n"
		if g.chance(0.6) {
			c.Caddyfile += g.serialize("")
		}
		c.Caddyfile += g.block(2, true) + "}\n}\n"
	}
	c.Caddyfile += "}\n"
	for range 3 + g.IntN(5) {
		c.Clients = append(c.Clients, g.client())
	}
	if g.chance(0.1) {
		c.Reload = 100 + g.IntN(300)
	}
	return c
}

func (g *edgeGenerator) chance(probability float64) bool { return g.Float64() < probability }
func pick[T any](g *edgeGenerator, choices ...T) T       { return choices[g.IntN(len(choices))] }
func (g *edgeGenerator) path() string                    { return pick(g, "/a", "/b", "/c") }

// longestTimeout is that of a queue. A ticket of a client that has gone must leave earlier.
const longestTimeout = 30 * time.Second

func (g *edgeGenerator) queue() edgeQueue {
	q := edgeQueue{Timeout: int(longestTimeout.Milliseconds())}
	if g.chance(0.7) {
		q.Timeout = pick(g, 100, 200, 400, 1000)
	}
	if g.chance(0.2) {
		q.QueueLength = 1 + g.IntN(2)
	}
	if g.chance(0.3) {
		q.HoldTimeout = pick(g, 300, 600)
	}
	if g.chance(0.2) {
		q.Concurrency = 2 + g.IntN(2)
	}
	q.Readers = g.chance(0.15)
	q.Cancel = g.chance(0.25)
	q.Buffer = pick(g, "", "", "1KiB", "16KiB", "1KiB 16KiB", "16KiB 128KiB", "1KiB 0KiB")
	if g.chance(0.35) {
		q.Buffer = "off"
	}
	if g.chance(0.5) {
		q.ResponseSize = pick(g, "0", "1KiB", "16KiB", "1MiB", "32MiB")
	}
	return q
}

// serialize makes a line. Nested ones may come to the same queue again. A strict line of a
// queue lets nobody in beside.
func (g *edgeGenerator) serialize(path string) string {
	i, kind := g.IntN(len(g.c.Queues)), "lax"
	q := g.c.Queues[i]
	if g.chance(0.2) {
		q.Concurrency, q.Readers, kind = 1, false, "strict"
	}
	if path == "" {
		path = "*"
	}
	var text strings.Builder
	option := func(set bool, format string, args ...any) {
		if set {
			fmt.Fprintf(&text, format+"\n", args...)
		}
	}
	if !g.unguarded {
		option(true, "serialize %s {\npath {$DIR}\nprefix %s\nengine %s", path, queueName(i), g.engine)
		option(true, "timeout %dms\nhold_timeout %dms\nqueue_length %d", q.Timeout, q.HoldTimeout, q.QueueLength)
		option(q.Concurrency > 0, "concurrency %d", q.Concurrency)
		option(q.Readers, "shared_methods GET")
		option(q.Cancel, "on_disconnect cancel")
		option(q.Buffer != "", "buffer %s", q.Buffer)
		option(q.ResponseSize != "", "response_buffer %s", q.ResponseSize)
		option(true, "}")
	}
	option(true, `request_header %s +X-Trail "%s={http.serialize.token}=%s={http.serialize.wait_ms}"`, path, kind, queueName(i))
	return text.String()
}

// block makes the contents of a block.
func (g *edgeGenerator) block(depth int, inError bool) string {
	chosen := g.IntN(100)
	if depth <= 0 || chosen >= 90 {
		if g.chance(0.125) {
			return "reverse_proxy 127.0.0.1:1\n" // to nowhere
		}
		return "reverse_proxy {$UPSTREAM}\n"
	}
	path, last := g.path(), g.block(depth-1, inError)
	switch {
	case chosen < 34:
		return g.serialize(pick(g, "", "", "", "", path)) + last
	case chosen < 38:
		if !g.unguarded {
			last = "serialize " + path + " off\n" + last
		}
		return "request_header " + path + " +X-Trail off\n" + last
	case chosen < 52:
		return "route " + path + " {\n" + g.block(depth-1, inError) + "}\n" + last
	case chosen < 60:
		return "handle " + path + " {\nroute {\n" + last + "}\n}\nhandle {\nroute {\n" + g.block(depth-1, inError) + "}\n}\n"
	case chosen < 68:
		g.rewrites++
		return fmt.Sprintf("rewrite * /to%[1]d\nroute /to%[1]d {\n%[2]s}\n", g.rewrites, last)
	case chosen < 74 && depth > 2 && g.named > 0:
		return fmt.Sprintf("invoke n%d\n", g.IntN(g.named))
	case chosen < 84 && !inError:
		return "error @fail 418\n" + last // for requests that ask for it
	}
	return "reverse_proxy {$UPSTREAM} {\n@bad status 5xx\nhandle_response @bad {\nroute {\n" + last + "}\n}\n}\n"
}

// client makes a client that makes trouble, or none.
func (g *edgeGenerator) client() edgeClient {
	c := edgeClient{
		Start: g.IntN(400), Process: g.IntN(g.c.Processes), HTTP2: g.chance(0.25), Path: g.path(),
		Fail: g.chance(0.3), Reset: g.chance(0.3), Steps: []edgeStep{g.step(), g.step()},
	}
	if g.chance(0.4) {
		g.body(&c)
	}
	switch chosen := g.IntN(100); {
	case chosen < 36:
		c.HangUp, c.After = pick(g, "time", "hit", "error hit"), g.IntN(300)
		c.Fail = c.Fail || c.HangUp == "error hit"
	case chosen < 56:
		g.cut(&c)
	case chosen < 70:
		g.stall(&c)
	case chosen < 76:
		c.Read = "slow"
		c.Steps = []edgeStep{{Work: 20, Do: "some"}}
	case chosen < 84:
		c.Steps = []edgeStep{{Work: 20, Do: "events"}}
		c.HangUp, c.After, c.Limit = "hit", 50+g.IntN(300), 1500
	}
	return c
}

func (g *edgeGenerator) body(c *edgeClient) {
	c.Method, c.Chunked = "POST", g.chance(0.4)
	c.Body = pick(g, 10, 1<<10, 2<<10, 17<<10, 40<<10, 144<<10, 200<<10)
}

// cut gives a client a body that stops, for a moment or for good.
func (g *edgeGenerator) cut(c *edgeClient) {
	g.body(c)
	c.Cut = 1 + g.IntN(c.Body-1)
	switch {
	case g.chance(0.3):
		c.Pause = 100 + g.IntN(400)
	case g.chance(0.2):
		c.Garbage, c.Chunked, c.HTTP2 = true, true, false
	default:
		c.HangUp, c.After, c.Limit = pick(g, "time", "hit"), g.IntN(400), 1200
	}
}

// stall lets a client stop reading, or the upstream work: for longer than a request may
// hold a queue.
func (g *edgeGenerator) stall(c *edgeClient) {
	if g.chance(0.4) {
		c.Steps = []edgeStep{{Work: pick(g, 700, 4500), Deaf: g.chance(0.5)}}
		return
	}
	c.Read, c.Limit = "never", pick(g, 700, 4500)
	c.Steps = []edgeStep{{Work: 10, Do: "stream"}}
}

func (g *edgeGenerator) step() edgeStep {
	s := edgeStep{Work: pick(g, g.IntN(50), g.IntN(250)), Deaf: g.chance(0.7), Unread: g.chance(0.15)}
	if g.chance(0.4) {
		s.Do = pick(g, "fail", "fail", "break", "break", "half", "some")
	}
	return s
}
