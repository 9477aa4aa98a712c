//go:build unix

package integration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// edgeFeatures are what cases are made of. The flag -edges.without leaves some
// out, to tell one cause from another.
var edgeFeatures = []string{
	"refusals",     // short timeouts, short queues
	"errors",       // error routes
	"reentry",      // serialize in error routes
	"hangups",      // of clients that wait or are inside
	"errorhangups", // of clients whose request is in an error route
	"uploads",      // bodies that stop, for a moment or for good
	"large",        // bodies larger than what is read into memory
	"garbage",      // bodies in chunks that are none
	"holds",        // hold_timeout
	"stalls",       // clients that do not read or send any more; longer than hold_timeout
	"cancel",       // on_disconnect cancel
	"shared",       // concurrency, shared_methods
	"evictions",
	"reloads",
	"extra", // a byte more than the request
	"http2",
	"processes", // two of them on one directory
	"disk",      // the second value of buffer
	"responses", // response_buffer
}

// edgeGenerator makes cases from a seed.
type edgeGenerator struct {
	*rand.Rand
	without map[string]bool
	queues  int
	named   int
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
	g := &edgeGenerator{Rand: rand.New(rand.NewPCG(seed, 0)), without: without}
	c := &edgeCase{Seed: seed, Engine: "file", Processes: 1}
	switch {
	case g.chance(0.3):
		c.Engine = "memory"
	case g.has("processes", 0.3):
		c.Processes = 2
	}
	g.queues = 1 + g.IntN(5)/3
	for range g.queues {
		c.Queues = append(c.Queues, g.queue())
	}
	if g.chance(0.4) {
		g.named = 1 + g.IntN(2)
	}
	c.Main = g.main()
	c.Errors = g.errors()
	for range g.named {
		c.Named = append(c.Named, g.block(2, false))
	}
	for range 3 + g.IntN(5) {
		c.Clients = append(c.Clients, g.client(c))
	}
	if g.has("evictions", 0.15) {
		c.Evictions = []int{100 + g.IntN(500)}
	}
	if g.has("reloads", 0.1) {
		c.Reloads = []int{100 + g.IntN(300)}
	}
	return c
}

// has decides about a feature, unless it is left out.
func (g *edgeGenerator) has(feature string, probability float64) bool {
	chosen := g.chance(probability) // so that the rest of the case holds the same
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
		q.QueueLength = 1 + g.IntN(2)
	}
	if g.has("holds", 0.3) {
		q.HoldTimeout = pick(g, 300, 600)
	}
	if g.has("cancel", 0.25) {
		q.Cancel = true
	}
	if g.has("shared", 0.15) {
		q.Concurrency = 2 + g.IntN(2)
	}
	if g.has("shared", 0.15) {
		q.SharedMethods = "GET"
	}
	switch {
	case g.has("disk", 0.2):
		q.Buffer = pick(g, "1KiB 16KiB", "16KiB 128KiB", "1KiB 0")
	case g.has("large", 0.1):
		q.Buffer = "0"
	case g.chance(0.7):
		q.Buffer = pick(g, "1KiB", "16KiB")
	}
	q.Response = g.chance(0.1)
	if g.has("responses", 0.5) {
		q.ResponseSize = pick(g, "0", "1KiB", "16KiB", "1MiB", "32MiB")
	}
	return q
}

func (g *edgeGenerator) serialize(depth int, inError bool) []edgeNode {
	return []edgeNode{{Kind: nodeSerialize, Queue: g.IntN(g.queues), Nodes: g.block(depth-1, inError)}}
}

func (g *edgeGenerator) main() []edgeNode {
	if g.chance(0.8) {
		return g.serialize(4, false)
	}
	return g.block(4, false)
}

func (g *edgeGenerator) errors() []edgeNode {
	chosen := g.Float64()
	nodes := g.block(2, true)
	switch reentry := !g.without["reentry"]; {
	case chosen < 0.15 || g.without["errors"]:
		return nil
	case chosen < 0.65 && reentry:
		return []edgeNode{{Kind: nodeSerialize, Queue: g.IntN(g.queues), Nodes: nodes}}
	case chosen < 0.85:
		return []edgeNode{{Kind: nodeProxy}}
	}
	return nodes
}

// block makes the contents of a block. Of several serialize directives in one
// block only one would apply, so each gets a route of its own.
func (g *edgeGenerator) block(depth int, inError bool) []edgeNode {
	if depth <= 0 {
		return g.leaf()
	}
	within := func() []edgeNode { return g.block(depth-1, inError) }
	switch n := g.IntN(100); {
	case n < 30 && !(inError && g.without["reentry"]):
		return g.serialize(depth, inError)
	case n < 42:
		return append([]edgeNode{{Kind: nodeRoute, Path: g.path(), Nodes: within()}}, within()...)
	case n < 50:
		return []edgeNode{{Kind: nodeHandle, Path: g.path(), Nodes: within()}, {Kind: nodeHandle, Nodes: within()}}
	case n < 60:
		g.rewrite++
		return []edgeNode{{Kind: pick(g, nodeRewrite, nodeMissing), Path: fmt.Sprintf("/to%d", g.rewrite), Nodes: within()}}
	case n < 66 && g.named > 0 && depth > 2:
		return []edgeNode{{Kind: nodeInvoke, Named: g.IntN(g.named)}}
	case n < 80 && !inError:
		return append([]edgeNode{{Kind: nodeFail}}, within()...)
	case n < 85:
		return []edgeNode{{Kind: nodeRecover, Nodes: within()}}
	}
	return g.leaf()
}

func (g *edgeGenerator) leaf() []edgeNode {
	kind := nodeProxy
	switch n := g.IntN(100); {
	case n < 6:
		kind = nodeDead
	case n < 12:
		kind = nodeRespond
	}
	return []edgeNode{{Kind: kind}}
}

func (g *edgeGenerator) path() string { return pick(g, "/a", "/b", "/c") }

// client makes a client that makes trouble, or none.
func (g *edgeGenerator) client(c *edgeCase) edgeClient {
	client := edgeClient{
		Start:   g.IntN(400),
		Process: g.IntN(c.Processes),
		HTTP2:   g.has("http2", 0.25),
		Method:  pick(g, "GET", "GET", "POST"),
		Path:    g.path(),
		Fail:    g.chance(0.3),
		Again:   g.chance(0.15),
		Reset:   g.chance(0.3),
		Steps:   []edgeStep{g.step(), g.step()},
	}
	if client.Method == "POST" {
		client.Body = g.size()
		client.Chunked = g.chance(0.4)
	}
	switch n := g.IntN(100); {
	case n < 12:
		g.hangUp(&client, "hangups", hangUpTime)
	case n < 24:
		g.hangUp(&client, "hangups", hangUpVisit)
	case n < 38:
		g.hangUp(&client, "errorhangups", hangUpErrorVisit)
	case n < 56:
		g.upload(&client)
	case n < 64 && !g.without["garbage"]:
		g.body(&client)
		client.Garbage, client.Chunked, client.HTTP2 = true, true, false
	case n < 74 && !g.without["stalls"]:
		g.stall(&client, c)
	case n < 80:
		client.Read = "slow"
		client.Steps = []edgeStep{{Work: 20, Do: doSome}}
	}
	if !client.HTTP2 && client.Cut == 0 && g.has("extra", 0.1) {
		client.Extra, client.Again = true, false
	}
	return client
}

func (g *edgeGenerator) hangUp(client *edgeClient, feature, when string) {
	after := g.IntN(80)
	if when == hangUpTime {
		after = g.IntN(600)
	}
	if !g.without[feature] {
		client.HangUp, client.After = when, after
		client.Fail = client.Fail || when == hangUpErrorVisit
	}
}

// size is how many bytes a body has.
func (g *edgeGenerator) size() int {
	size := pick(g, 10, 1<<10, 2<<10, 17<<10, 40<<10, 144<<10, 200<<10)
	if g.without["large"] {
		return 10
	}
	return size
}

// body gives a client a body that will not arrive completely.
func (g *edgeGenerator) body(client *edgeClient) {
	client.Method = "POST"
	client.Body = g.size()
	client.Cut = 1 + g.IntN(client.Body-1)
}

// upload lets a client stop in the middle of its body, and go on or hang up.
func (g *edgeGenerator) upload(client *edgeClient) {
	goesOn, pause, after := g.chance(0.3), 100+g.IntN(400), g.IntN(400)
	if g.without["uploads"] {
		return
	}
	g.body(client)
	if goesOn {
		client.Pause = pause
		return
	}
	client.HangUp, client.After = pick(g, hangUpTime, hangUpVisit), after
	client.Limit = 1200
}

// stall lets a client stop reading or sending, or the upstream work. With a
// hold_timeout, that lasts longer than a request may hold a queue, otherwise
// for a moment.
func (g *edgeGenerator) stall(client *edgeClient, c *edgeCase) {
	stall := 700
	if slices.ContainsFunc(c.Queues, func(q edgeQueue) bool { return q.HoldTimeout > 0 }) {
		stall = 4500
	}
	if g.chance(0.3) {
		client.Fail = client.Fail || g.chance(0.3)
		client.Steps = []edgeStep{{Work: stall, Deaf: g.chance(0.5)}}
		return
	}
	client.Limit = stall
	if g.chance(0.4) {
		g.body(client)
		return
	}
	client.Read = "never"
	client.Steps = []edgeStep{{Work: 10, Do: doStream}}
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
