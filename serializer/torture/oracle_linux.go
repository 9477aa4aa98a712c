package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testjudge"
)

// oracle judges what the log says, record by record.
//
// A process that is killed counts as inside until just before the signal was sent. After
// that, the next one may enter.
//
// When the directory is replaced, processes that knew the old one must let its tickets
// finish first, and the turns that their holders take there. An engine that was opened later
// cannot know of them. So the two may overlap, and one may have the smaller token; nothing
// else is excused.
type oracle struct {
	start     int64
	spans     []*span        // of faults, in the order in which they began
	thrown    map[string]int // faults that have happened
	queues    []queueOracle
	pause     *pause // the last one
	entries   int
	slotted   int            // of the entries: with a slot
	found     map[string]int // of each kind
	examples  []string
	refused   []int           // by outcome
	deaths    map[int]int64   // of the processes that were killed
	newest    map[int]*record // of each process: its newest engine, and the latest arrival that entered through it
	recovered []time.Duration // between kill -9 of a holder and the next entry
}

// queueOracle is what the oracle knows about one queue.
type queueOracle struct {
	judge    testjudge.Queue[*record]
	evicting map[uint64]bool // tokens that somebody has asked to evict
}

// What may be found.
const (
	overlap        = "overlap"
	inversion      = "inversion"
	intrusion      = "intrusion into a paused queue"
	evictedUnasked = "evicted though nobody asked"
	inVain         = "waited in vain"
	lost           = "lost"
)

const examplesKept = 10

func newOracle() *oracle {
	o := &oracle{
		start: now(), pause: new(pause), thrown: make(map[string]int), found: make(map[string]int), deaths: make(map[int]int64),
		newest: make(map[int]*record), refused: make([]int, reasons+len(serializer.Reasons())),
	}
	for range queues {
		o.queues = append(o.queues, queueOracle{testjudge.Queue[*record]{Excused: o.excuses}, make(map[uint64]bool)})
	}
	return o
}

func (o *oracle) judge(r *record) {
	q := &o.queues[r.queue]
	if _, dead := o.deaths[r.process]; dead && r.what != evicts {
		return // it was killed while it did that
	}
	switch r.what {
	case opens:
		o.newest[r.process] = r
	case enters:
		o.enter(q, r)
	case leaves:
		q.judge.Leave(func(h *record) bool { return h.process == r.process && h.goroutine == r.goroutine })
	case refuses:
		o.refused[r.outcome]++
		if r.outcome == starved {
			o.blame(inVain, r)
		}
	case evicts:
		q.evicting[r.token] = true
	case confirms:
		if r.arrived == o.pause.until {
			o.pause.confirmed[placeOf(r)] = r.token
		}
	case dies:
		o.deaths[r.process] = r.at
	}
	evicted := r.what == revokes || r.what == refuses && r.outcome == outcomeOf(serializer.ReasonEvicted)
	if evicted && !q.evicting[r.token] {
		o.blame(evictedUnasked, r)
	}
}

func (o *oracle) enter(q *queueOracle, e *record) {
	o.entries++
	if queues[e.queue].Slots != nil {
		o.slotted++
	}
	q.judge.Leave(func(h *record) bool {
		died, dead := o.deaths[h.process]
		// A recovery is measured if no other fault was in progress, and somebody waited.
		if dead && queues[e.queue].Rule == (serializer.Rule{}) && e.arrived <= died && !o.busy(died-int64(settleTime), e.at, "kill") {
			o.recovered = append(o.recovered, time.Duration(e.at-died))
		}
		return dead
	})
	beside, behind := q.judge.Enter(e)
	o.blame(overlap, beside...)
	o.blame(inversion, behind...)
	if last := o.newest[e.process]; last != nil && last.opened == e.opened {
		last.began = max(last.began, e.began) // a nested one may be in an earlier directory
	}
	if o.pause.forbids(e) {
		o.blame(intrusion, e)
	}
}

// Judged is the turn of a record.
func (r *record) Judged() testjudge.Turn {
	q, turn := queues[r.queue], testjudge.Turn{Token: r.token}
	turn.Rule, turn.Slots = serializer.Rule{Limit: q.Rule.Limit, Shared: r.reader}, q.Slots != nil
	if r.slot >= 0 {
		turn.Slot = slotNames[r.slot]
	}
	return turn
}

// excuses reports whether a holder may overlap with an earlier one, or have a smaller token, because the
// directory was replaced.
func (o *oracle) excuses(before, e *record) bool {
	return slices.ContainsFunc(o.spans, func(s *span) bool {
		return s.fault == directoryReplaced && (before.began < s.to && e.opened > s.from || e.began < s.to && before.opened > s.from)
	})
}

// blame notes a violation in a queue by those who are recorded. Nobody is to blame for nothing.
func (o *oracle) blame(kind string, records ...*record) {
	var text strings.Builder
	for _, r := range records {
		fmt.Fprintf(&text, " [%q process %d opened %.3f goroutine %d token %d slot %d reader %t arrived %.3f entered %.3f]",
			queues[r.queue].Queue, r.process, o.ms(r.opened), r.goroutine, r.token, r.slot, r.reader, o.ms(r.arrived), o.ms(r.at))
	}
	if len(records) > 0 {
		o.find(kind, text.String())
	}
}

// ms is a moment in milliseconds since the start.
func (o *oracle) ms(t int64) float64 { return float64(t-o.start) / 1e6 }

// find counts what was found, and keeps the first examples.
func (o *oracle) find(kind, text string) {
	if o.found[kind]++; len(o.examples) < examplesKept {
		o.examples = append(o.examples, kind+": "+text)
	}
}

// span is the time in which a fault was in progress.
type span struct {
	fault    string
	needs    resources
	from, to int64
}

// never is a moment in the infinite future.
const never int64 = math.MaxInt64

// begin notes that a fault is in progress until the returned function is called.
func (h *harness) begin(fault string) (end func()) {
	s := &span{fault, 0, now(), never}
	h.tell(func() { h.spans = append(h.spans, s) })
	return func() { h.tell(func() { s.to = now() }) }
}

// busy reports whether a fault was in progress in a period, apart from one kind.
func (o *oracle) busy(from, to int64, apart string) bool {
	return slices.ContainsFunc(o.spans, func(s *span) bool { return s.fault != apart && s.from < to && s.to > from })
}

// recoveryLimit is the longest time until the next entry after kill -9 of the holder.
const recoveryLimit = 250 * time.Millisecond

// holds reports whether nothing was found, even if something took too long.
func (o *oracle) holds() bool { return len(o.found) == 0 }

func (o *oracle) ok() bool { return o.holds() && o.recovery(1) <= recoveryLimit }

// recovery is a quantile of the times of recovery.
func (o *oracle) recovery(q float64) time.Duration {
	if len(o.recovered) == 0 {
		return 0
	}
	slices.Sort(o.recovered)
	return o.recovered[int(q*float64(len(o.recovered)-1))].Round(10 * time.Microsecond)
}

// String is the report of a run.
func (h *harness) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("processes", "%d with %d goroutines each", h.procs, h.Goroutines)
	line("faults", "%v", h.thrown)
	line("time", "%v", h.took.Round(time.Millisecond))
	line("hand-overs", "%d, %.0f/s, %d with a slot", h.entries, float64(h.entries)/h.took.Seconds(), h.slotted)
	line("found", "%v", h.found)
	for i, reason := range serializer.Reasons() {
		line("refused", "%s: %d", reason, h.refused[reasons+i])
	}
	line("recoveries", "%d after kill -9 of the holder: median %v, worst %v", len(h.recovered), h.recovery(0.5), h.recovery(1))
	verdict := "holds"
	if !h.holds() {
		verdict = "BROKEN"
		for _, e := range h.examples {
			line("", "%s", e)
		}
		for _, s := range h.spans[max(len(h.spans)-20, 0):] {
			line("", "fault %s from %.3f for %v", s.fault, h.ms(s.from), time.Duration(min(s.to, now())-s.from))
		}
	} else if !h.ok() {
		verdict = fmt.Sprintf("holds, but took more than %v to continue", recoveryLimit)
	}
	line("verdict", "%s", verdict)
	return b.String()
}
