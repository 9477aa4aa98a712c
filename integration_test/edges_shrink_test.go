//go:build unix

package integration_test

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// shrink prints a failing case, as small as it can be made in a minute: for as long as it
// fails in the same way without one of its parts.
func (b *edgeBench) shrink(c *edgeCase, found []*violation) {
	if *edgesGoOn {
		return
	}
	end := time.Now().Add(time.Minute)
	kind := found[0].kind
	for candidates := c.smaller(); len(candidates) > 0 && time.Now().Before(end); {
		next := candidates[0]
		candidates = candidates[1:]
		for range 2 { // not every run of a case is the same
			again, err := b.run(next)
			if err == nil && slices.ContainsFunc(again, func(v *violation) bool { return v.kind == kind }) {
				c, found, candidates = next, again, next.smaller()
				break
			}
		}
	}
	b.t.Logf("the case, as small as it could be made: %v\n%s", found, c)
}

// smaller lists cases with one part less.
func (c *edgeCase) smaller() (cases []*edgeCase) {
	for _, tree := range withoutOne(reread[any](c)) {
		smaller := reread[*edgeCase](tree)
		smaller.Processes = max(smaller.Processes, 1)
		// Lines refer to queues by their numbers.
		if len(smaller.Queues) == len(c.Queues) && asJSON(smaller) != asJSON(c) {
			cases = append(cases, smaller)
		}
	}
	return cases
}

func reread[T any](from any) (to T) {
	if err := json.Unmarshal([]byte(asJSON(from)), &to); err != nil {
		panic(err)
	}
	return to
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
			smaller := maps.Clone(value)
			delete(smaller, name)
			all = append(all, smaller)
			for _, part := range withoutOne(value[name]) {
				smaller := maps.Clone(value)
				smaller[name] = part
				all = append(all, smaller)
			}
		}
	}
	return all
}
