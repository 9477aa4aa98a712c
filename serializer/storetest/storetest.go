// Package storetest tests whether a store keeps the promises of [serializer.Store]. All
// stores of this project pass it, and it is also for stores that others write:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Options{}, func(t testing.TB, n int) []serializer.Store {
//			... // n stores that share their queues
//		})
//	}
//
// The suite has two parts. The first one tests the store alone: it notes what the store
// reports. The second one tests engines on the store: the order, which callers may be
// inside together, and what is left behind. Each promise is a named case. No case bounds
// a time from above, so no store fails because the machine is slow. Run it with -race.
//
// Whatever is specific to a store, such as files, leases or dying processes, belongs in
// the store's own tests.
package storetest

import (
	"cmp"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Options adjust the suite to a store. The zero value suits most stores.
type Options struct {
	// Private says that no two stores can share queues. The suite then asks for one store
	// at a time. Default: false.
	Private bool

	// Patience is how long the suite waits for what must happen. Default: one minute.
	Patience time.Duration

	// Seed repeats a random run; a run logs its own. Default: a random number.
	Seed uint64
}

// Run runs the suite, each case as a subtest. Every case calls open once, which returns n
// stores that share their queues, as n processes do, without any tickets. The suite closes
// them. The number n is 2, or 1 with [Options.Private].
func Run(t *testing.T, o Options, open func(t testing.TB, n int) []serializer.Store) {
	t.Helper()
	for _, c := range cases {
		if !c.sharing || !o.Private {
			t.Run(c.name, func(t *testing.T) { c.run(t, o, open) })
		}
	}
}

// testCase is one promise.
type testCase struct {
	name    string
	sharing bool // needs two stores
	test    func(testing.TB, Options, []serializer.Store)
}

var cases = []testCase{
	{"numbers", false, followed(storeNumbers)},
	{"tickets of others", false, followed(storeOthers)},
	{"queue names", false, followed(storeNames)},
	{"joined is published", true, followed(storePublished)},
	{"unwanted tickets", false, followed(storeUnwanted)},
	{"refused tickets", false, followed(storeRefused)},
	{"following later", true, storeLate},
	{"pause", false, followed(storePause)},
	{"eviction", true, followed(storeEvict)},
	{"closing", false, followed(storeClose)},
	{"history of engines", false, engineHistory},
}

// run opens stores and tests them.
func (c testCase) run(t testing.TB, o Options, open func(t testing.TB, n int) []serializer.Store) {
	t.Helper()
	o.Patience = cmp.Or(o.Patience, time.Minute)
	o.Seed = cmp.Or(o.Seed, rand.Uint64())
	n := 2
	if o.Private {
		n = 1
	}
	stores := open(t, n)
	if len(stores) != n {
		t.Fatalf("open returned %d stores; expected %d", len(stores), n)
	}
	c.test(t, o, stores)
}

// until waits for what must happen.
func (o Options) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !wait.Poll(o.Patience, holds) {
		t.Fatalf("waited in vain for %v until %s", o.Patience, what)
	}
}
