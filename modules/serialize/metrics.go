package serialize

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Outcomes of requests other than refusals.
const (
	outcomeEntered = "entered"
	outcomeSkipped = "skipped"
)

// outcomes are all outcomes of requests.
var outcomes = func() []string {
	all := []string{outcomeEntered, outcomeSkipped, outcomeWouldEnter, outcomeWouldWait}
	for _, reason := range serializer.Reasons() {
		all = append(all, string(reason))
	}
	return all
}()

// outcomeInside is the outcome of a request that was inside. cause says why its
// hold ended early, if it did.
func outcomeInside(cause error) string {
	switch {
	case errors.Is(cause, serializer.ErrLost):
		return string(serializer.ReasonLost)
	case errors.Is(cause, serializer.ErrEvicted):
		return string(serializer.ReasonEvicted)
	}
	return outcomeEntered
}

// counts are the numbers of one configured prefix. They are counted here and
// nowhere else; the metrics and the status page read them.
type counts struct {
	created         time.Time
	outcomes        map[string]*atomic.Int64 // by outcome; all are there from the beginning
	waiting, inside atomic.Int64
	draining        atomic.Int64 // clients that still read after the turn

	page         atomic.Bool              // there is a waiting page
	kept         atomic.Int64             // tickets whose browsers have it
	keptOutcomes map[string]*atomic.Int64 // of these; all are there from the beginning
}

func newCounts() *counts {
	c := &counts{created: time.Now(), outcomes: make(map[string]*atomic.Int64), keptOutcomes: make(map[string]*atomic.Int64)}
	for _, outcome := range outcomes {
		c.outcomes[outcome] = new(atomic.Int64)
	}
	for _, outcome := range keptOutcomes {
		c.keptOutcomes[outcome] = new(atomic.Int64)
	}
	return c
}

// metricSet holds the metrics of all queues. A process has one set: each
// configuration has a registry of its own, and the counts must survive it.
type metricSet struct {
	wait, hold, idle *prometheus.HistogramVec
	atOnce           *prometheus.HistogramVec

	requests, waiting, inside          *prometheus.Desc
	draining                           *prometheus.Desc
	kept, keptTotal                    *prometheus.Desc
	limit, oldestInside, oldestWaiting *prometheus.Desc
	paused                             *prometheus.Desc

	mu     sync.Mutex
	counts map[string]*counts // by prefix
}

var metrics = sync.OnceValue(func() *metricSet {
	const namespace = "caddy_serialize"
	labels := []string{"queue"}
	seconds := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help,
			// 100 microseconds to five minutes, with bounds at the usual timeouts.
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
			// In addition, for servers that ask for native histograms.
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	}
	atOnce := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "dry_run_inside",
		Help: "In a dry run: how many were inside at once, itself included, when a request entered.",
		// A bound is a value of concurrency with which that many would not wait.
		Buckets: []float64{1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 128, 256, 512},
	}, labels)
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &metricSet{
		wait:          seconds("wait_seconds", "Time spent waiting in the queue."),
		atOnce:        atOnce,
		hold:          seconds("hold_seconds", "Time spent inside."),
		idle:          seconds("idle_seconds", "Time for which turns waited for browsers that have the waiting page."),
		kept:          desc("kept", "Tickets of this process that are kept for browsers with the waiting page.", labels...),
		keptTotal:     desc("kept_total", "Tickets that were kept for browsers with the waiting page, by outcome.", "queue", "outcome"),
		requests:      desc("requests_total", "Requests by outcome.", "queue", "outcome"),
		waiting:       desc("waiting", "Requests of this process that wait in the queue.", labels...),
		inside:        desc("inside", "Requests of this process that are inside.", labels...),
		draining:      desc("draining", "Requests of this process that have left while their clients still read the response.", labels...),
		paused:        desc("paused", "1 if the queue is paused, or all queues of a prefix with placeholders; else 0.", labels...),
		limit:         desc("limit", "How many requests may be inside a queue; 0 is no limit.", labels...),
		oldestInside:  desc("oldest_inside_seconds", "How long the first request of this process has been inside; 0 if there is none.", labels...),
		oldestWaiting: desc("oldest_waiting_seconds", "How long the first request of this process has waited; 0 if there is none.", labels...),
		counts:        make(map[string]*counts),
	}
})

// register adds the metrics to a configuration's registry.
func (m *metricSet) register(registry *prometheus.Registry) error {
	for _, c := range []prometheus.Collector{m.wait, m.hold, m.idle, m.atOnce, m} {
		err := registry.Register(c)
		if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !again {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// Describe implements [prometheus.Collector].
func (m *metricSet) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{m.requests, m.waiting, m.inside, m.draining, m.kept, m.keptTotal, m.limit, m.paused, m.oldestInside, m.oldestWaiting} {
		to <- desc
	}
}

// collectPatience bounds the time in which engines say what is paused.
const collectPatience = time.Second

// Collect implements [prometheus.Collector]. Ages are computed here, since they
// grow while nothing happens.
func (m *metricSet) Collect(to chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, prefix string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, prefix)
	}
	for prefix, c := range m.allCounts() {
		for outcome, count := range c.outcomes {
			to <- prometheus.MustNewConstMetricWithCreatedTimestamp(m.requests, prometheus.CounterValue, float64(count.Load()), c.created, prefix, outcome)
		}
		gauge(m.waiting, float64(c.waiting.Load()), prefix)
		gauge(m.inside, float64(c.inside.Load()), prefix)
		gauge(m.draining, float64(c.draining.Load()), prefix)
		if !c.page.Load() {
			continue
		}
		gauge(m.kept, float64(c.kept.Load()), prefix)
		for outcome, count := range c.keptOutcomes {
			to <- prometheus.MustNewConstMetricWithCreatedTimestamp(m.keptTotal, prometheus.CounterValue, float64(count.Load()), c.created, prefix, outcome)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectPatience)
	defer cancel()
	paused := collectPaused(ctx)
	now := time.Now()
	for _, s := range allStats() {
		gauge(m.paused, s.paused(paused), s.prefix)
		if u := s.usage(); len(u.paths) > 0 {
			gauge(m.limit, float64(u.limit), s.prefix)
		}
		gauge(m.oldestInside, s.inside.Oldest(now).Seconds(), s.prefix)
		gauge(m.oldestWaiting, s.waiting.Oldest(now).Seconds(), s.prefix)
	}
}

func (m *metricSet) allCounts() map[string]*counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.counts)
}

// countsOf returns the counts of a prefix.
func (m *metricSet) countsOf(prefix string) *counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts[prefix]
	if c == nil {
		c = newCounts()
		m.counts[prefix] = c
	}
	return c
}

// meters is what one handler counts with. The label of its metrics is the prefix as
// configured, so their number does not grow with traffic.
type meters struct {
	counts     *counts
	wait, hold prometheus.Observer
	atOnce     prometheus.Observer // in a dry run, else nil
	idle       prometheus.Observer // nil without a waiting page
	stats      *prefixStats        // of the prefix; nil before the handler is provisioned
	holds      *holdEstimate       // of the prefix, in the handler's directory
}

func newMeters(m *metricSet, prefix string) *meters {
	return &meters{
		counts: m.countsOf(prefix),
		wait:   m.wait.WithLabelValues(prefix),
		hold:   m.hold.WithLabelValues(prefix),
	}
}

// openMeters registers the metrics with the handler's configuration.
func (s *Handler) openMeters(ctx caddy.Context) error {
	set := metrics()
	if err := set.register(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	s.meters = newMeters(set, s.Prefix)
	if s.DryRun {
		s.meters.atOnce = set.atOnce.WithLabelValues(s.Prefix)
	}
	if s.WaitingPage != nil {
		s.meters.openPage(set, s.Prefix)
	}
	return nil
}

// openPage adds the metrics of a waiting page.
func (m *meters) openPage(set *metricSet, prefix string) {
	m.counts.page.Store(true)
	m.idle = set.idle.WithLabelValues(prefix)
}

// count notes a request's outcome.
func (m *meters) count(outcome string) { m.counts.outcomes[outcome].Add(1) }

// startWait notes that a request has begun to wait.
func (m *meters) startWait(age *agelist.Entry, queue string, now time.Time) {
	m.counts.waiting.Add(1)
	age.Queue = queue
	m.stats.waiting.Insert(age, now)
}

// endWait notes that it waits no longer.
func (m *meters) endWait(age *agelist.Entry, waited time.Duration) {
	m.counts.waiting.Add(-1)
	m.wait.Observe(waited.Seconds())
	m.stats.waiting.Remove(age)
}

// startHold notes that a request has entered.
func (m *meters) startHold(v *visit) {
	m.counts.inside.Add(1)
	m.stats.recent.Entered(v.entered, v.waited)
	v.age.Queue = v.queue
	m.stats.inside.Insert(&v.age, v.entered)
}

// endHold notes that it has left.
func (m *meters) endHold(v *visit, held time.Duration) {
	m.counts.inside.Add(-1)
	m.hold.Observe(held.Seconds())
	m.holds.add(v.idle + held)
	m.stats.inside.Remove(&v.age)
}

// countKept notes what became of a ticket that was kept for a browser.
func (m *meters) countKept(outcome string) { m.counts.keptOutcomes[outcome].Add(1) }

// startIdle notes that a turn has come that waits for its browser. Nobody else is inside
// meanwhile, so it counts as inside.
func (m *meters) startIdle(age *agelist.Entry, now time.Time) {
	m.counts.inside.Add(1)
	m.stats.inside.Insert(age, now)
}

// endIdle notes that it waits no longer.
func (m *meters) endIdle(age *agelist.Entry) {
	m.counts.inside.Add(-1)
	m.stats.inside.Remove(age)
}

// idled notes how long a turn waited for its browser.
func (m *meters) idled(idle time.Duration) { m.idle.Observe(idle.Seconds()) }

// Interface guards
var _ prometheus.Collector = (*metricSet)(nil)
