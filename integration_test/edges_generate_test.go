//go:build unix

package integration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// edgeFeatures are what cases are made of. The flag -edges.without leaves some out, to tell
// one cause from another.
var edgeFeatures = []string{
	"refusals", // short timeouts, short queues
	"errors",   // error routes
	"reentry",  // serialize in error routes
	"off",
	"strict",  // lines of one queue that differ
	"hangups", // of clients that wait or are inside
	"bodies",
	"streaming", // buffer off
	"uploads",   // bodies that stop, for a moment or for good
	"garbage",   // bodies in chunks that are none
	"incremental",
	"holds",  // hold_timeout
	"stalls", // clients that do not read or send any more; longer than hold_timeout
	"events", // streams, which end with their clients
	"cancel", // on_disconnect cancel
	"shared", // concurrency, shared_methods
	"evictions",
	"reloads",
	"extra", // a byte more than the request
	"http2",
	"processes", // two of them on one directory
	"responses", // response_buffer
}

// edgeGenerator makes cases from a seed.
type edgeGenerator struct {
	*rand.Rand
	without map[string]bool
	c       *edgeCase
	named   int // routes
	rewrite int
}

// parseFeatures reads a list of features.
func parseFeatures(list string) (map[string]bool, error) {
	features := make(map[string]bool)
	for name := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(edgeFeatures, name) {
			return nil, fmt.Errorf("feature %q: expected some of %v", name, edgeFeatures)
		}
		features[name] = true
	}
	return features, nil
}

func generateEdges(seed uint64, without map[string]bool) *edgeCase {
	c := &edgeCase{Seed: seed, Processes: 1}
	g := &edgeGenerator{Rand: rand.New(rand.NewPCG(seed, 0)), without: without, c: c}
	switch {
	case g.chance(0.3):
		c.Engine = "memory"
	case g.has("processes", 0.3):
		c.Processes = 2
	}
	for range 1 + g.IntN(5)/3 {
		c.Queues = append(c.Queues, g.queue())
	}
	if g.chance(0.4) {
		g.named = 1 + g.IntN(2)
	}
	if g.chance(0.8) {
		c.Main = []edgeNode{{Kind: nodeSerialize, Queue: g.IntN(len(c.Queues))}}
	}
	c.Main = append(c.Main, g.block(4, false)...)
	c.Errors = g.errors()
	for range g.named {
		c.Named = append(c.Named, g.block(2, false))
	}
	for range 3 + g.IntN(5) {
		c.Clients = append(c.Clients, g.client())
	}
	if g.has("evictions", 0.15) {
		c.Evict = 100 + g.IntN(500)
	}
	if g.has("reloads", 0.1) {
		c.Reload = 100 + g.IntN(300)
	}
	return c
}

// has decides about a feature, unless it is left out.
func (g *edgeGenerator) has(feature string, probability float64) bool {
	chosen := g.chance(probability) // so that the rest of the case stays the same
	return chosen && !g.without[feature]
}

func (g *edgeGenerator) chance(probability float64) bool { return g.Float64() < probability }

func pick[T any](g *edgeGenerator, choices ...T) T { return choices[g.IntN(len(choices))] }

func (g *edgeGenerator) queue() edgeQueue {
	q := edgeQueue{Timeout: 30000}
	if g.has("refusals", 0.7) {
		q.Timeout = pick(g, 100, 200, 400, 1000)
	}
	if g.has("refusals", 0.2) {
		q.QueueLength, q.DropOldest = 1+g.IntN(2), g.chance(0.3)
	}
	if g.has("holds", 0.3) {
		q.HoldTimeout = pick(g, 300, 600)
	}
	if g.has("shared", 0.2) {
		q.Concurrency = 2 + g.IntN(2)
	}
	q.Readers = g.has("shared", 0.15)
	q.Cancel = g.has("cancel", 0.25)
	q.Buffer = pick(g, "", "", "1KiB", "16KiB", "1KiB 16KiB", "16KiB 128KiB", "1KiB 0")
	if g.has("streaming", 0.35) {
		q.Buffer = "off"
	}
	q.Response = g.chance(0.1)
	if g.has("responses", 0.5) {
		q.ResponseSize = pick(g, "0", "1KiB", "16KiB", "1MiB", "32MiB")
	}
	return q
}

// serialize makes a line. Nested ones come to the same queues again.
func (g *edgeGenerator) serialize() edgeNode {
	n := edgeNode{Kind: nodeSerialize, Queue: g.IntN(len(g.c.Queues)), Strict: g.has("strict", 0.2)}
	if g.chance(0.2) {
		n.Path = g.path()
	}
	return n
}

func (g *edgeGenerator) errors() []edgeNode {
	chosen := g.Float64()
	nodes := g.block(2, true)
	switch {
	case chosen < 0.15 || g.without["errors"]:
		return nil
	case chosen < 0.65 && !g.without["reentry"]:
		return append([]edgeNode{g.serialize()}, nodes...)
	case chosen < 0.8:
		return []edgeNode{{Kind: nodeProxy}}
	}
	return nodes
}

// block makes the contents of a block.
func (g *edgeGenerator) block(depth int, inError bool) []edgeNode {
	if depth <= 0 {
		return g.leaf()
	}
	within := func() []edgeNode { return g.block(depth-1, inError) }
	before := func(n edgeNode) []edgeNode { return append([]edgeNode{n}, within()...) }
	switch n := g.IntN(100); {
	case n < 34 && !(inError && g.without["reentry"]):
		return before(g.serialize())
	case n < 38 && !g.without["off"]:
		return before(edgeNode{Kind: nodeOff, Path: pick(g, "", g.path())})
	case n < 50:
		return before(edgeNode{Kind: nodeRoute, Path: g.path(), Nodes: within()})
	case n < 58:
		return []edgeNode{{Kind: nodeHandle, Path: g.path(), Nodes: within()}, {Kind: nodeHandle, Nodes: within()}}
	case n < 66:
		g.rewrite++
		return []edgeNode{{Kind: nodeRewrite, Path: fmt.Sprintf("/to%d", g.rewrite), Nodes: within()}}
	case n < 72 && g.named > 0 && depth > 2:
		return []edgeNode{{Kind: nodeInvoke, Named: g.IntN(g.named)}}
	case n < 84 && !inError:
		return before(edgeNode{Kind: nodeFail})
	case n < 90:
		return []edgeNode{{Kind: nodeRecover, Nodes: within()}}
	}
	return g.leaf()
}

func (g *edgeGenerator) leaf() []edgeNode {
	kinds := []string{nodeProxy, nodeDead, nodeRespond}
	return []edgeNode{{Kind: kinds[max(0, g.IntN(20)-17)]}}
}

func (g *edgeGenerator) path() string { return pick(g, "/a", "/b", "/c") }

// client makes a client that makes trouble, or none.
func (g *edgeGenerator) client() edgeClient {
	c := edgeClient{
		Start:   g.IntN(400),
		Process: g.IntN(g.c.Processes),
		HTTP2:   g.has("http2", 0.25),
		Method:  pick(g, "GET", "GET", "POST"),
		Path:    g.path(),
		Fail:    g.chance(0.3),
		Again:   g.chance(0.15),
		Reset:   g.chance(0.3),
		Steps:   []edgeStep{g.step(), g.step()},
	}
	if c.Method == "POST" && !g.without["bodies"] {
		c.Body = g.size()
		c.Chunked = g.chance(0.4)
		c.Incremental = g.has("incremental", 0.1)
	}
	g.trouble(&c)
	if !c.HTTP2 && c.Cut == 0 && g.has("extra", 0.1) {
		c.Extra, c.Again = true, false
	}
	return c
}

func (g *edgeGenerator) trouble(c *edgeClient) {
	switch n := g.IntN(100); {
	case n < 38 && !g.without["hangups"]:
		c.HangUp, c.After = pick(g, hangUpTime, hangUpVisit, hangUpErrorVisit), g.IntN(80)
		c.Fail = c.Fail || c.HangUp == hangUpErrorVisit
		if c.HangUp == hangUpTime {
			c.After = g.IntN(600)
		}
	case n < 56 && !g.without["uploads"] && !g.without["bodies"]:
		g.cutBody(c)
		if g.chance(0.3) {
			c.Pause = 100 + g.IntN(400)
			return
		}
		c.HangUp, c.After, c.Limit = pick(g, hangUpTime, hangUpVisit), g.IntN(400), 1200
	case n < 62 && !g.without["garbage"] && !g.without["bodies"]:
		g.cutBody(c)
		c.Garbage, c.Chunked, c.HTTP2 = true, true, false
	case n < 72 && !g.without["stalls"]:
		g.stall(c)
	case n < 78:
		c.Read = "slow"
		c.Steps = []edgeStep{{Work: 20, Do: doSome}}
	case n < 84 && !g.without["events"]:
		c.Steps = []edgeStep{{Work: 20, Do: doEvents}}
		c.HangUp, c.After, c.Limit, c.Again = hangUpVisit, 50+g.IntN(300), 1500, false
	}
}

// size is how many bytes a body has.
func (g *edgeGenerator) size() int {
	return pick(g, 10, 1<<10, 2<<10, 17<<10, 40<<10, 144<<10, 200<<10)
}

// cutBody gives a client a body that will not arrive completely.
func (g *edgeGenerator) cutBody(c *edgeClient) {
	c.Method = "POST"
	c.Body = g.size()
	c.Cut = 1 + g.IntN(c.Body-1)
}

// stall lets a client stop reading or sending, or the upstream work. With a hold_timeout,
// that lasts longer than a request may hold a queue, otherwise for a moment.
func (g *edgeGenerator) stall(c *edgeClient) {
	stall := 700
	if slices.ContainsFunc(g.c.Queues, func(q edgeQueue) bool { return q.HoldTimeout > 0 }) {
		stall = 4500
	}
	if g.chance(0.3) {
		c.Fail = c.Fail || g.chance(0.3)
		c.Steps = []edgeStep{{Work: stall, Deaf: g.chance(0.5)}}
		return
	}
	c.Limit = stall
	if g.chance(0.4) && !g.without["bodies"] {
		g.cutBody(c)
		return
	}
	c.Read = "never"
	c.Steps = []edgeStep{{Work: 10, Do: doStream}}
}

func (g *edgeGenerator) step() edgeStep {
	s := edgeStep{Work: g.IntN(250), Deaf: g.chance(0.7), Unread: g.chance(0.15)}
	if g.chance(0.05) {
		s.Work = 1200
	}
	switch n := g.IntN(100); {
	case n < 15:
		s.Do = doFail
	case n < 30:
		s.Do = doBreak
	case n < 34:
		s.Do = doHalf
	case n < 40:
		s.Do = doSome
	}
	return s
}
