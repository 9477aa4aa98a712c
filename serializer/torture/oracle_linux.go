package main

import (
	"cmp"
	"fmt"
	"maps"
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
// else is excused. When the last
// number is lost, tokens may decrease once, relative to callers that had left.
type oracle struct {
	start     int64
	spans     timeline       // of faults
	thrown    map[string]int // faults that have happened
	queues    []queueOracle
	entries   int
	slotted   int            // of the entries: with a slot
	found     map[string]int // of each kind
	examples  []string
	refused   []int             // by outcome
	deaths    map[int]int64     // of the processes that were killed
	newest    map[int]*record   // of each process: its newest engine, and the latest arrival that entered through it
	recovered times             // between kill -9 of a holder and the next entry
	evicting  map[ticketID]bool // somebody asked for that
}

// queueOracle is what the oracle knows about one queue.
type queueOracle struct {
	testQueue
	judge testjudge.Queue[*record]
	pause pause // the last one
}

type ticketID struct {
	queue int
	token uint64
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

var kinds = []string{overlap, inversion, intrusion, evictedUnasked, inVain, lost}

const examplesKept = 10

func newOracle() *oracle {
	o := &oracle{start: now(), spans: make(timeline), thrown: make(map[string]int), found: make(map[string]int), deaths: make(map[int]int64),
		newest:   make(map[int]*record),
		evicting: make(map[ticketID]bool), refused: make([]int, reasons+len(serializer.Reasons()))}
	for _, q := range queues {
		o.queues = append(o.queues, queueOracle{testQueue: q, judge: testjudge.Queue[*record]{Excused: o.excuses}})
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
		q.judge.Leave(func(h *record) bool { return h.who == r.who })
	case refuses:
		o.refuse(q, r)
	case evicts:
		o.evicting[ticketID{r.queue, r.token}] = true
	case revokes:
		o.checkEviction(q, r)
	case confirms:
		q.confirm(r)
	case dies:
		o.deaths[r.process] = r.at
	}
}

func (o *oracle) enter(q *queueOracle, e *record) {
	o.entries++
	if q.slots {
		o.slotted++
	}
	q.judge.Leave(func(h *record) bool {
		died, dead := o.deaths[h.process]
		if dead {
			o.noteRecovery(q, died, e)
		}
		return dead
	})
	beside, behind := q.judge.Enter(e)
	o.blame(overlap, q, beside...)
	o.blame(inversion, q, behind...)
	if last := o.newest[e.process]; last != nil && last.opened == e.opened {
		last.began = max(last.began, e.began) // a nested one may be in an earlier directory
	}
	o.checkPause(q, e)
}

// noteRecovery measures a recovery if no other fault was in progress, and somebody waited.
func (o *oracle) noteRecovery(q *queueOracle, died int64, e *record) {
	if q.limit == 0 && !q.mixed && e.arrived <= died && !o.spans.busy(died-int64(settleTime), e.at, "kill") {
		o.recovered = append(o.recovered, time.Duration(e.at-died))
	}
}

// refuse notes a refusal.
func (o *oracle) refuse(q *queueOracle, r *record) {
	o.refused[r.outcome]++
	switch r.outcome {
	case starved:
		o.blame(inVain, q, r)
	case outcomeOf(serializer.ReasonEvicted):
		o.checkEviction(q, r)
	}
}

// checkEviction checks that somebody has asked for it.
func (o *oracle) checkEviction(q *queueOracle, r *record) {
	if !o.evicting[ticketID{r.queue, r.token}] {
		o.blame(evictedUnasked, q, r)
	}
}

// Judged is the turn of a record.
func (r *record) Judged() testjudge.Turn {
	q, turn := queues[r.queue], testjudge.Turn{Token: r.token}
	turn.Rule = serializer.Rule{Limit: q.limit, Shared: r.reader}
	if turn.Slots = q.slots; r.slot >= 0 {
		turn.Slot = slotNames[r.slot]
	}
	return turn
}

// excuses reports whether a holder may overlap with an earlier one, because the directory was replaced, and
// whether it may have a smaller token.
func (o *oracle) excuses(before, e *record) (together, smaller bool) {
	unknown := func(s *span, old, young *record) bool { return old.began < s.to && young.opened > s.from }
	together = slices.ContainsFunc(o.spans[directoryReplaced], func(s *span) bool { return unknown(s, before, e) || unknown(s, e, before) })
	return together, together || slices.ContainsFunc(o.spans[numberForgotten], func(s *span) bool { return before.began < s.to && e.at > s.from })
}

// blame notes a violation in a queue by those who are recorded. Nobody is to blame for nothing.
func (o *oracle) blame(kind string, q *queueOracle, records ...*record) {
	if len(records) == 0 {
		return
	}
	text := fmt.Sprintf("in %q:", q.prefix)
	for _, r := range records {
		text += " " + o.describe(r)
	}
	o.find(kind, text)
}

// find counts what was found, and keeps the first examples.
func (o *oracle) find(kind, text string) {
	if o.found[kind]++; len(o.examples) < examplesKept {
		o.examples = append(o.examples, kind+": "+text)
	}
}

// describe lists a record's contents, with times in milliseconds since the start.
func (o *oracle) describe(r *record) string {
	ms := func(t int64) float64 { return float64(t-o.start) / 1e6 }
	return fmt.Sprintf("[process %d opened %.3f goroutine %d token %d slot %d reader %t arrived %.3f entered %.3f]",
		r.process, ms(r.opened), r.goroutine, r.token, r.slot, r.reader, ms(r.arrived), ms(r.at))
}

// timeline has the times in which faults were in progress, by their names.
type timeline map[string][]*span

// span is the time in which a fault was in progress.
type span struct {
	fault    string
	from, to int64
}

// never is a moment in the infinite future.
const never int64 = math.MaxInt64

// begin notes that a fault is in progress until the returned function is called.
func (h *harness) begin(fault string) (end func()) {
	s := &span{fault, now(), never}
	h.tell(func(o *oracle) { o.spans[fault] = append(o.spans[fault], s) })
	return func() { h.tell(func(*oracle) { s.to = now() }) }
}

// busy reports whether a fault was in progress in a period, apart from one kind.
func (t timeline) busy(from, to int64, apart string) bool {
	for fault, spans := range t {
		if fault != apart && slices.ContainsFunc(spans, func(s *span) bool { return s.from < to && s.to > from }) {
			return true
		}
	}
	return false
}

// last describes the last faults. Times are in milliseconds since start.
func (t timeline) last(n int, start int64) (lines []string) {
	all := slices.Concat(slices.Collect(maps.Values(t))...)
	slices.SortFunc(all, func(a, b *span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range all[max(len(all)-n, 0):] {
		lines = append(lines, fmt.Sprintf("fault %s from %.3f for %v", s.fault, float64(s.from-start)/1e6, time.Duration(min(s.to, now())-s.from)))
	}
	return lines
}

// report is the result of a run.
type report struct {
	config
	*oracle
	took time.Duration
}

// recoveryLimit is the longest time until the next entry after kill -9 of the holder.
const recoveryLimit = 250 * time.Millisecond

// holds reports whether nothing was found, even if something took too long.
func (r *report) holds() bool { return len(r.found) == 0 }

func (r *report) ok() bool {
	return r.holds() && r.recovered.quantile(1) <= recoveryLimit
}

// times are durations of one kind, sorted.
type times []time.Duration

func (t times) quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[int(q*float64(len(t)-1))].Round(10 * time.Microsecond)
}

func (r *report) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("seed", "%d", r.Seed)
	line("store", "%s", r.Store)
	line("processes", "%d with %d goroutines each", r.procs, r.Goroutines)
	line("faults", "%v", r.thrown)
	line("time", "%v", r.took.Round(time.Millisecond))
	line("hand-overs", "%d, %.0f/s, %d with a slot", r.entries, float64(r.entries)/r.took.Seconds(), r.slotted)
	for _, kind := range kinds {
		line("found", "%s: %d", kind, r.found[kind])
	}
	for i, reason := range serializer.Reasons() {
		line("refused", "%s: %d", reason, r.refused[reasons+i])
	}
	line("recoveries", "%d after kill -9 of the holder: median %v, worst %v", len(r.recovered), r.recovered.quantile(0.5), r.recovered.quantile(1))
	if !r.holds() {
		for _, e := range slices.Concat(r.examples, r.spans.last(20, r.start)) {
			line("", "%s", e)
		}
	}
	verdict := "BROKEN"
	switch {
	case r.ok():
		verdict = "holds"
	case r.holds():
		verdict = fmt.Sprintf("holds, but took more than %v to continue", recoveryLimit)
	}
	line("verdict", "%s", verdict)
	return b.String()
}
