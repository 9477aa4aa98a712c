package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// oracle reads the log for the judge, while the harness notes what it does to the
// processes.
type oracle struct {
	mu sync.Mutex // held while the judge is in use
	judge
}

// judge is what the oracle knows, and what it has found.
//
// A process that is killed counts as inside until just before the signal was sent. After
// that, the next one may enter.
//
// When the directory is replaced, processes that knew the old one must let its tickets
// finish first. An engine that was opened later cannot know of them. So the two may
// overlap, and one may have the smaller token; nothing else is excused. When the last
// number is lost, tokens may decrease once, relative to callers that had left.
type judge struct {
	*shared
	start int64
	next  int // the next record to read

	queues    []queueOracle
	entries   int
	found     findings
	examples  []string
	shown     []moment // when the examples happened
	recovered times
	deaths    map[int]death   // by number of the process
	slots     map[int]int     // by number of the process: its slot, while it runs
	engines   map[int][]int64 // by number of a process that has ended: when its engines were opened
	replaced  []moment        // the directory was replaced
	forgotten []moment        // the last number was lost
	troubled  []moment        // any other fault was in progress
	pauses    pausesSeen
}

// death is the end of a process that was killed.
type death struct {
	at       int64
	measured bool // no other fault was in progress
}

// moment is when something happened: after from and before to.
type moment struct{ from, to int64 }

// queueOracle is what the oracle knows about one queue.
type queueOracle struct {
	testQueue
	inside     map[who]record
	last       record // the greatest token that has entered
	lastWriter record
	recent     []passed   // in a limited queue
	paused     *pauseSpan // the last pause, until the first entry after it
	arrivals   []record   // in a queue with keep
}

// passed is a token that has entered, and how many smaller ones entered later.
type passed struct {
	record
	by int
}

const (
	recentKept   = 512
	examplesKept = 10
)

// never is a moment in the infinite future.
const never int64 = math.MaxInt64

func newOracle(s *shared, queues []testQueue) *oracle {
	o := &oracle{judge: judge{shared: s, start: now(), deaths: make(map[int]death), slots: make(map[int]int), engines: make(map[int][]int64)}}
	o.pauses.known = make(map[engineID]map[int]knowledge)
	for _, q := range queues {
		o.queues = append(o.queues, queueOracle{testQueue: q, inside: make(map[who]record)})
	}
	return o
}

// catchUp reads and judges all new records of the log.
func (o *oracle) catchUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.next < o.records() {
		r, used, complete := o.read(o.next)
		if !used {
			return
		}
		died, dead := o.death(r.process)
		if !complete && !dead {
			return // it is still being written
		}
		o.next++
		switch {
		case r.knows && complete:
			o.know(r)
		case r.knows:
		case r.refused:
			if complete {
				o.queues[r.queue].arrivals = append(o.queues[r.queue].arrivals, r)
			}
		case r.leaving:
			delete(o.queues[r.queue].inside, r.who)
		case !complete, dead && r.at >= died.at:
			// It was killed while it entered.
		default:
			o.enter(r)
		}
	}
}

// death returns when a process was killed, if it was.
func (j *judge) death(process int) (death, bool) {
	d, ok := j.deaths[process]
	return d, ok
}

func (j *judge) enter(e record) {
	j.entries++
	q := &j.queues[e.queue]
	for _, h := range q.inside {
		if d, dead := j.death(h.process); dead && e.at >= d.at {
			j.reap(q, h, d, e)
		}
	}
	if others := slices.DeleteFunc(slices.Collect(maps.Values(q.inside)), func(h record) bool { return j.excused(h, e) }); !q.fits(e, others) {
		j.found.overlaps++
		j.keepExample(append(others, e), "overlap in %q: %s while %s inside", q.prefix, j.describe(e), j.describe(others...))
	}
	q.inside[e.who] = e
	j.checkOrder(q, e)
	j.checkPause(q, e)
	if q.keep > 0 {
		q.arrivals = append(q.arrivals, e)
	}
}

// reap ends the hold of a process that was killed. e is the next entry.
func (j *judge) reap(q *queueOracle, h record, d death, e record) {
	delete(q.inside, h.who)
	if q.kind != exclusive || !d.measured || e.arrived > d.at {
		return
	}
	for _, t := range j.troubled {
		if t.from < e.at && d.at < t.to {
			return
		}
	}
	j.recovered = append(j.recovered, time.Duration(e.at-d.at))
}

// fits reports whether e may be inside with others.
func (q *queueOracle) fits(e record, others []record) bool {
	switch q.kind {
	case limited:
		return len(others) < limit
	case mixed:
		return !slices.ContainsFunc(others, func(h record) bool { return !h.shared || !e.shared })
	}
	return len(others) == 0
}

// checkOrder compares the token with earlier ones. Readers, and arrivals in a limited
// queue, are admitted in order, but their records may be in a different order. So each is
// compared only with those that it must have waited for.
func (j *judge) checkOrder(q *queueOracle, e record) {
	before := q.last
	switch {
	case q.kind == limited:
		j.checkRecent(q, e)
		return
	case q.kind == mixed && e.shared:
		before = q.lastWriter
	}
	if e.token <= before.token {
		if !j.forgiven(before, e) {
			j.found.inverted++
			j.keepExample([]record{before, e}, "inversion in %q: %s after %s", q.prefix, j.describe(e), j.describe(before))
		}
		q.last, q.lastWriter = e, record{}
	}
	if e.token > q.last.token {
		q.last = e
	}
	if !e.shared {
		q.lastWriter = e
	}
}

// checkRecent checks how many smaller tokens entered after each recent one.
func (j *judge) checkRecent(q *queueOracle, e record) {
	for i := range q.recent {
		before := &q.recent[i]
		if before.token < e.token || j.forgiven(before.record, e) {
			continue
		}
		before.by++
		if before.by == limit {
			j.found.inverted++
			j.keepExample([]record{before.record, e}, "inversion in %q: %s after %s", q.prefix, j.describe(e), j.describe(before.record))
		}
	}
	if len(q.recent) == recentKept {
		q.recent = append(q.recent[:0], q.recent[recentKept/2:]...)
	}
	q.recent = append(q.recent, passed{record: e})
}

// excused reports whether two holders may overlap because the directory was replaced.
func (j *judge) excused(a, b record) bool {
	return slices.ContainsFunc(j.replaced, func(m moment) bool {
		return j.unknown(m, a, b) || j.unknown(m, b, a)
	})
}

// forgiven reports whether the token of e may be smaller than that of an earlier entry.
func (j *judge) forgiven(before, e record) bool {
	return j.excused(before, e) || slices.ContainsFunc(j.forgotten, func(m moment) bool {
		return before.arrived < m.to && e.at > m.from
	})
}

// unknown reports whether old's ticket may be from before the moment, and young's engine
// from after it.
func (j *judge) unknown(m moment, old, young record) bool {
	return old.arrived < m.to && j.opened(young) > m.from
}

// opened returns when the engine of a record had first worked in the directory.
func (j *judge) opened(r record) int64 {
	if times := j.engines[r.process]; times != nil {
		return times[r.engine%enginesKept]
	}
	if slot, ok := j.slots[r.process]; ok {
		return int64(j.get(control(slot, ctlEngines+r.engine%enginesKept)))
	}
	return math.MaxInt64
}

// keepExample keeps an example, and when it happened: from its first arrival to its last entry.
func (j *judge) keepExample(records []record, format string, args ...any) {
	if len(j.examples) == examplesKept {
		return
	}
	j.examples = append(j.examples, fmt.Sprintf(format, args...))
	m := moment{from: math.MaxInt64}
	for _, r := range records {
		m.from, m.to = min(m.from, r.arrived), max(m.to, r.at)
	}
	j.shown = append(j.shown, m)
}

// describe lists the contents of records, with times in milliseconds since the start of
// the run.
func (j *judge) describe(records ...record) string {
	ms := func(t int64) float64 { return float64(t-j.start) / 1e6 }
	var b strings.Builder
	for _, r := range records {
		what := "alone"
		if r.shared {
			what = "shared"
		}
		fmt.Fprintf(&b, "[process %d.%d opened %.3f goroutine %d token %d %s arrived %.3f entered %.3f]",
			r.process, r.engine, ms(j.opened(r)), r.goroutine, r.token, what, ms(r.arrived), ms(r.at))
	}
	return b.String()
}

// born, killed and ended follow the lives of processes.

func (o *oracle) born(process, slot int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.slots[process] = slot
}

func (o *oracle) killed(process int, measured bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deaths[process] = death{now(), measured}
}

// ended saves the data of a process whose control block will be reused.
func (o *oracle) ended(process int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	slot := o.slots[process]
	times := make([]int64, enginesKept)
	for i := range times {
		times[i] = int64(o.get(control(slot, ctlEngines+i)))
	}
	o.engines[process] = times
	delete(o.slots, process)
}

// moment begins a moment in one of the lists. The returned function ends it.
func (o *oracle) moment(list *[]moment) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := len(*list)
	*list = append(*list, moment{now(), math.MaxInt64})
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		(*list)[i].to = now()
	}
}

// sofar returns the counts up to now.
func (o *oracle) sofar() (entries, recoveries int, found findings) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entries, len(o.recovered), o.found
}

// findings counts violations.
type findings struct {
	overlaps int
	inverted int
	intruded int // entries into a paused queue
	wronged  int // superseded wrongly, or entered although superseded
}

func (f findings) any() bool { return f != findings{} }

// of returns the count of one kind.
func (f findings) of(kind string) int {
	switch kind {
	case "overlap":
		return f.overlaps
	case "inversion":
		return f.inverted
	case "intrusion":
		return f.intruded
	}
	return 0
}
