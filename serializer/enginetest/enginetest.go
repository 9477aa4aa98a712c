// Package enginetest tests whether an engine keeps the promises of [serializer.Engine]:
// the order, which callers may be inside together, and what is left behind. All engines
// of this project pass it, and it is also for engines that others write:
//
//	func TestEngine(t *testing.T) {
//		enginetest.Run(t, enginetest.Options{}, func(t testing.TB, n int) []serializer.Engine {
//			... // n engines that share their queues
//		})
//	}
//
// Each promise is a named case. In every case, a judge watches all callers that enter:
// who is inside together, and whether the tokens grow. No case measures time, so no
// engine fails because the machine is slow. Run it with -race.
//
// Whatever is specific to an engine, such as files, leases or dying processes, belongs
// in the engine's own tests.
package enginetest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Options adjust the suite to an engine. The zero value is the whole suite.
type Options struct {
	// Private says that no two engines can share queues. The suite then asks for one
	// engine at a time. Default: false.
	Private bool

	// Skip names the cases that the engine cannot pass, and need not. Default: none.
	Skip []string

	// QueueName turns any text into the name of a queue, for engines that do not allow
	// every name. Different texts must have different names. Nil uses the text
	// unchanged.
	QueueName func(text string) string

	// Patience is how long the suite waits for what must happen. Default: one minute.
	Patience time.Duration

	// Steps is the number of steps in the random history. Default: 150.
	Steps int

	// Seed repeats a random run; a run logs its own. Default: a random number.
	Seed uint64
}

// Run runs the suite, each case as a subtest. Every case calls open once, and once more
// to enter with Join if the engine is a [serializer.Joiner]. open returns n engines
// that share their queues, as n processes do, without any tickets. The suite closes
// them. The number n is 1 or 2; with [Options.Private], it is always 1.
func Run(t *testing.T, o Options, open func(t testing.TB, n int) []serializer.Engine) {
	t.Helper()
	o = o.withDefaults()
	for _, name := range o.Skip {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.name == name }) {
			t.Errorf("no case %q to skip", name)
		}
	}
	for _, c := range cases {
		if c.sharing && o.Private || slices.Contains(o.Skip, c.name) {
			continue
		}
		joiner := false
		t.Run(c.name, func(t *testing.T) {
			s := c.open(t, o, open)
			_, joiner = s.on(0).(serializer.Joiner)
			s.run(c)
		})
		if joiner {
			t.Run(c.name+", joining", func(t *testing.T) {
				s := c.open(t, o, open)
				s.joining = true
				s.run(c)
			})
		}
	}
}

func (o Options) withDefaults() Options {
	if o.QueueName == nil {
		o.QueueName = func(text string) string { return text }
	}
	o.Patience = cmp.Or(o.Patience, time.Minute)
	o.Steps = cmp.Or(o.Steps, 150)
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return o
}

// testCase is one promise.
type testCase struct {
	name    string
	test    func(*space)
	sharing bool // needs two engines
	pausing bool // needs engines that can pause
}

var cases = []testCase{
	{name: "path", test: testPath},
	{name: "order", test: testOrder},
	{name: "order of Joined", test: testJoined},
	{name: "tokens grow", test: testTokens},
	{name: "who may be inside together", test: testTogether},
	{name: "readers behind a writer", test: testReadersBehindWriter},
	{name: "leaving twice", test: testLeaveTwice},
	{name: "timeout", test: testTimeout},
	{name: "giving up", test: testGiveUp},
	{name: "full", test: testFull},
	{name: "dropping the oldest", test: testDropOldest},
	{name: "dropping the oldest of several", test: testDropOldestOfSeveral},
	{name: "dropping all but the latest", test: testDropOldestBurst},
	{name: "dropping the oldest behind one that stays", test: testDropOldestBehindAnother},
	{name: "whom dropping the oldest concerns", test: testDropOldestRules},
	{name: "caller gone", test: testGone},
	{name: "caller gone before", test: testGoneBefore},
	{name: "evicting a waiter", test: testEvictWaiter},
	{name: "evicting a holder", test: testEvictHolder},
	{name: "evicting nobody", test: testEvictNobody},
	{name: "pause", test: testPause, pausing: true},
	{name: "pause with several inside", test: testPauseSeveralInside, pausing: true},
	{name: "end of a pause", test: testPauseEnds, pausing: true},
	{name: "pause of a group", test: testPauseGroup, pausing: true},
	{name: "refusals during a pause", test: testRefusalsInPause, pausing: true},
	{name: "list", test: testList},
	{name: "list is empty in the end", test: testListEmpty},
	{name: "count", test: testCount},
	{name: "queue names", test: testNames},
	{name: "closing", test: testClose},
	{name: "closing before readers", test: testCloseBeforeReaders},
	{name: "closing beside another engine", test: testCloseOne, sharing: true},
	{name: "random history", test: testHistory},
	{name: "many at once", test: testCrowd},
}

func (c testCase) open(t testing.TB, o Options, open func(t testing.TB, n int) []serializer.Engine) *space {
	t.Helper()
	n := 2
	if o.Private {
		n = 1
	}
	s := &space{TB: t, Options: o, engines: open(t, n)}
	if len(s.engines) != n {
		t.Fatalf("open returned %d engines; expected %d", len(s.engines), n)
	}
	t.Cleanup(s.end)
	return s
}

func (s *space) run(c testCase) {
	s.Helper()
	s.busy() // an engine may know of others only once it has been used
	s.visitors = nil
	if _, ok := s.on(0).(serializer.Pauser); ok || !c.pausing {
		c.test(s)
	}
}
