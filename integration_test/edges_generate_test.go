//go:build unix

package integration_test

import (
	"fmt"
	"math/rand/v2"
)

// edgeGenerator makes cases from a seed.
type edgeGenerator struct {
	*rand.Rand
	c       *edgeCase
	rewrite int
}

func generateEdges(seed uint64) *edgeCase {
	c := &edgeCase{Seed: seed, Processes: 1}
	g := &edgeGenerator{Rand: rand.New(rand.NewPCG(seed, 0)), c: c}
	if g.chance(0.3) {
		c.Engine = "memory"
	} else if g.chance(0.3) {
		c.Processes = 2
	}
	for range 1 + g.IntN(5)/3 {
		c.Queues = append(c.Queues, g.queue())
	}
	c.Named = make([][]edgeNode, g.IntN(3))
	for i := range c.Named {
		c.Named[i] = g.block(2, false)
	}
	if g.chance(0.8) {
		c.Main = []edgeNode{{Kind: "serialize", Queue: g.IntN(len(c.Queues))}}
	}
	c.Main = append(c.Main, g.block(4, false)...)
	if g.chance(0.85) {
		if g.chance(0.6) {
			c.Errors = []edgeNode{g.serialize()}
		}
		c.Errors = append(c.Errors, g.block(2, true)...)
	}
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

func (g *edgeGenerator) queue() edgeQueue {
	q := edgeQueue{Timeout: 30000}
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

// serialize makes a line. Nested ones may come to the same queue again.
func (g *edgeGenerator) serialize() edgeNode {
	n := edgeNode{Kind: "serialize", Queue: g.IntN(len(g.c.Queues)), Strict: g.chance(0.2)}
	if g.chance(0.2) {
		n.Path = g.path()
	}
	return n
}

// block makes the contents of a block.
func (g *edgeGenerator) block(depth int, inError bool) []edgeNode {
	chosen := g.IntN(100)
	if depth <= 0 || chosen >= 90 {
		return []edgeNode{{Kind: pick(g, "proxy", "proxy", "proxy", "proxy", "proxy", "proxy", "proxy", "dead")}}
	}
	n, last := edgeNode{Path: g.path()}, g.block(depth-1, inError)
	switch {
	case chosen < 34:
		n = g.serialize()
	case chosen < 38:
		n.Kind = "off"
	case chosen < 52:
		n.Kind, n.Nodes = "route", g.block(depth-1, inError)
	case chosen < 60:
		n.Kind, n.Nodes, last = "handle", last, []edgeNode{{Kind: "handle", Nodes: g.block(depth-1, inError)}}
	case chosen < 68:
		g.rewrite++
		n.Kind, n.Path, n.Nodes, last = "rewrite", fmt.Sprintf("/to%d", g.rewrite), last, nil
	case chosen < 74 && depth > 2 && len(g.c.Named) > 0:
		n.Kind, n.Named, last = "invoke", g.IntN(len(g.c.Named)), nil
	case chosen < 84 && !inError:
		n.Kind = "fail"
	default:
		n.Kind, n.Nodes, last = "recover", last, nil
	}
	return append([]edgeNode{n}, last...)
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
		c.HangUp, c.After = pick(g, "time", "visit", "error visit"), g.IntN(300)
		c.Fail = c.Fail || c.HangUp == "error visit"
	case chosen < 56:
		g.cut(&c)
	case chosen < 70:
		g.stall(&c)
	case chosen < 76:
		c.Read = "slow"
		c.Steps = []edgeStep{{Work: 20, Do: "some"}}
	case chosen < 84:
		c.Steps = []edgeStep{{Work: 20, Do: "events"}}
		c.HangUp, c.After, c.Limit = "visit", 50+g.IntN(300), 1500
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
		c.HangUp, c.After, c.Limit = pick(g, "time", "visit"), g.IntN(400), 1200
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
