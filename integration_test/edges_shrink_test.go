//go:build unix

package integration_test

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// shrink makes a failing case smaller for as long as it fails in the same way, and time is
// left. It returns the smallest, and how that failed.
func (b *edgeBench) shrink(c *edgeCase, found []*violation, within time.Duration) (*edgeCase, []*violation) {
	end := time.Now().Add(within)
	kind := found[0].kind
	for candidates := c.smaller(); len(candidates) > 0 && time.Now().Before(end); candidates = candidates[1:] {
		if again := b.failsAgain(candidates[0], kind); again != nil {
			c, found = candidates[0], again
			candidates = append([]*edgeCase{nil}, c.smaller()...)
		}
	}
	return c, found
}

// failsAgain tries a case twice, because not every run of it is the same. It returns what
// was found, if that is of the same kind.
func (b *edgeBench) failsAgain(c *edgeCase, kind string) []*violation {
	for range 2 {
		found, err := b.run(c)
		if err == nil && slices.ContainsFunc(found, func(v *violation) bool { return v.kind == kind }) {
			return found
		}
	}
	return nil
}

// smaller lists cases with one part less.
func (c *edgeCase) smaller() (cases []*edgeCase) {
	var tree map[string]any
	reread(c, &tree)
	for _, v := range withoutOne(tree) {
		smaller := new(edgeCase)
		reread(v, smaller)
		smaller.Processes = max(smaller.Processes, 1)
		// Lines refer to queues by their numbers.
		if len(smaller.Queues) == len(c.Queues) && asJSON(smaller) != asJSON(c) {
			cases = append(cases, smaller)
		}
	}
	return cases
}

// reread makes one form of a case of another.
func reread(from, to any) {
	if err := json.Unmarshal([]byte(asJSON(from)), to); err != nil {
		panic(err)
	}
}

// withoutOne lists what is left of a value without one of its parts, or with the contents
// of a block in its place.
func withoutOne(value any) (all []any) {
	switch value := value.(type) {
	case []any:
		for i, part := range value {
			all = append(all, slices.Concat(value[:i], value[i+1:]))
			block, _ := part.(map[string]any)
			if nodes, ok := block["Nodes"].([]any); ok {
				all = append(all, slices.Concat(value[:i], nodes, value[i+1:]))
			}
			for _, smaller := range withoutOne(part) {
				all = append(all, slices.Concat(value[:i], []any{smaller}, value[i+1:]))
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			without := maps.Clone(value)
			delete(without, name)
			all = append(all, without)
			for _, smaller := range withoutOne(value[name]) {
				with := maps.Clone(value)
				with[name] = smaller
				all = append(all, with)
			}
		}
	}
	return all
}
