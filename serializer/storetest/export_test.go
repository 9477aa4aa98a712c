package storetest

import (
	"slices"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// RunCase runs one case of the suite.
func RunCase(t testing.TB, name string, o Options, open func(t testing.TB, n int) []serializer.Store) {
	i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("no case %q", name)
	}
	cases[i].run(t, o, open)
}

// Cases are the names of all cases.
func Cases() (names []string) {
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}
