//go:build unix

package integration_test

import (
	"encoding/json"
	"slices"
	"time"
)

// shrink makes a failing case smaller for as long as it fails in the same way,
// and time is left. It returns the smallest, and how that failed.
func (b *edgeBench) shrink(c *edgeCase, found []*violation, within time.Duration) (*edgeCase, []*violation) {
	end := time.Now().Add(within)
	kind := found[0].kind
	for smaller := true; smaller; {
		smaller = false
		for _, candidate := range c.smaller() {
			if time.Now().After(end) {
				return c, found
			}
			if again := b.failsAgain(candidate, kind); again != nil {
				c, found, smaller = candidate, again, true
				break
			}
		}
	}
	return c, found
}

// failsAgain tries a case twice, because not every run of it is the same. It
// returns what was found, if that is of the same kind.
func (b *edgeBench) failsAgain(c *edgeCase, kind string) []*violation {
	for range 2 {
		found, err := b.run(c)
		if err == nil && slices.ContainsFunc(found, func(v *violation) bool { return v.kind == kind }) {
			return found
		}
	}
	return nil
}

// smaller lists cases that are one step smaller, the greatest steps first.
func (c *edgeCase) smaller() (cases []*edgeCase) {
	change := func(apply func(*edgeCase)) {
		smaller := c.clone()
		apply(smaller)
		if asJSON(smaller) != asJSON(c) {
			cases = append(cases, smaller)
		}
	}
	for i := range c.Clients {
		change(func(c *edgeCase) { c.Clients = slices.Delete(c.Clients, i, i+1) })
	}
	change(func(c *edgeCase) { c.Errors = nil })
	change(func(c *edgeCase) { c.Evictions = nil })
	change(func(c *edgeCase) { c.Reloads = nil })
	change(func(c *edgeCase) {
		c.Processes = 1
		for i := range c.Clients {
			c.Clients[i].Process = 0
		}
	})
	for _, nodes := range smallerNodes(c.Main) {
		change(func(c *edgeCase) { c.Main = nodes })
	}
	for _, nodes := range smallerNodes(c.Errors) {
		if len(nodes) > 0 {
			change(func(c *edgeCase) { c.Errors = nodes })
		}
	}
	for i, named := range c.Named {
		for _, nodes := range smallerNodes(named) {
			change(func(c *edgeCase) { c.Named[i] = nodes })
		}
	}
	for i := range c.Queues {
		for _, option := range []func(*edgeQueue){
			func(q *edgeQueue) { q.HoldTimeout = 0 },
			func(q *edgeQueue) { q.QueueLength = 0 },
			func(q *edgeQueue) { q.Concurrency = 0 },
			func(q *edgeQueue) { q.SharedMethods = "" },
			func(q *edgeQueue) { q.Cancel = false },
			func(q *edgeQueue) { q.Buffer = "" },
			func(q *edgeQueue) { q.Response = false },
			func(q *edgeQueue) { q.ResponseSize = "" },
			func(q *edgeQueue) { q.Timeout = 30000 },
		} {
			change(func(c *edgeCase) { option(&c.Queues[i]) })
		}
	}
	for i := range c.Clients {
		for _, option := range []func(*edgeClient){
			func(e *edgeClient) {
				*e = edgeClient{Start: e.Start, Method: "GET", Path: e.Path, Fail: e.Fail, Steps: e.Steps}
			},
			func(e *edgeClient) { e.HTTP2 = false },
			func(e *edgeClient) { e.Fail = false },
			func(e *edgeClient) { e.Extra = false },
			func(e *edgeClient) { e.Again = false },
			func(e *edgeClient) { e.Reset = false },
			func(e *edgeClient) { e.Chunked = e.Garbage },
			func(e *edgeClient) { e.Start = 0 },
			func(e *edgeClient) { e.Steps = e.Steps[:1] },
			func(e *edgeClient) { e.Steps[0].Do = "" },
			func(e *edgeClient) { e.Steps[0].Unread = false },
		} {
			change(func(c *edgeCase) { option(&c.Clients[i]) })
		}
	}
	return cases
}

func (c *edgeCase) clone() *edgeCase {
	clone := new(edgeCase)
	if err := json.Unmarshal([]byte(asJSON(c)), clone); err != nil {
		panic(err)
	}
	return clone
}

// smallerNodes lists what is left of a block without one of its nodes, or with
// the contents of one in its place.
func smallerNodes(nodes []edgeNode) (all [][]edgeNode) {
	replace := func(i int, by ...edgeNode) {
		all = append(all, slices.Concat(nodes[:i], by, nodes[i+1:]))
	}
	for i, n := range nodes {
		replace(i)
		if len(n.Nodes) > 0 {
			replace(i, n.Nodes...)
		}
		for _, within := range smallerNodes(n.Nodes) {
			smaller := n
			smaller.Nodes = within
			replace(i, smaller)
		}
	}
	return all
}
