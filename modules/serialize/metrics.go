package serialize

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Outcomes of requests other than refusals.
const (
	outcomeEntered    = "entered"
	outcomeSkipped    = "skipped"
	outcomeWouldEnter = "would_enter"
	outcomeWouldWait  = "would_wait"
)

// outcomes are all outcomes of requests.
var outcomes = func() []string {
	all := []string{outcomeEntered, outcomeSkipped, outcomeWouldEnter, outcomeWouldWait}
	for _, reason := range serializer.Reasons() {
		all = append(all, string(reason))
	}
	return all
}()

// metricSet holds the metrics of all queues. A process has one set: each configuration has
// a registry of its own, and the counts must survive it.
type metricSet struct {
	wait, hold *prometheus.HistogramVec

	requests, waiting, inside          *prometheus.Desc
	limit, oldestInside, oldestWaiting *prometheus.Desc
	paused                             *prometheus.Desc
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
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &metricSet{
		wait:          seconds("wait_seconds", "Time spent waiting in the queue."),
		hold:          seconds("hold_seconds", "Time spent inside."),
		requests:      desc("requests_total", "Requests by outcome.", "queue", "outcome"),
		waiting:       desc("waiting", "Requests of this process that wait in the queue.", labels...),
		inside:        desc("inside", "Requests of this process that are inside.", labels...),
		paused:        desc("paused", "1 if the queue is paused, or all queues of a prefix with placeholders; else 0.", labels...),
		limit:         desc("limit", "How many requests may be inside a queue; 0 is no limit.", labels...),
		oldestInside:  desc("oldest_inside_seconds", "How long the first request of this process has been inside; 0 if there is none.", labels...),
		oldestWaiting: desc("oldest_waiting_seconds", "How long the first request of this process has waited; 0 if there is none.", labels...),
	}
})

// register adds the metrics to a configuration's registry.
func (m *metricSet) register(registry *prometheus.Registry) error {
	for _, c := range []prometheus.Collector{m.wait, m.hold, m} {
		err := registry.Register(c)
		if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !again {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// Describe implements [prometheus.Collector].
func (m *metricSet) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{m.requests, m.waiting, m.inside, m.limit, m.paused, m.oldestInside, m.oldestWaiting} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector]. Ages are computed here, since they grow while
// nothing happens.
func (m *metricSet) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	for _, s := range registered.allStats() {
		gauge := func(desc *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.prefix)
		}
		for outcome, stats := range s.outcomes {
			to <- prometheus.MustNewConstMetricWithCreatedTimestamp(m.requests, prometheus.CounterValue, float64(stats.count.Load()), s.created, s.prefix, outcome)
		}
		gauge(m.waiting, float64(s.waiting.Load()))
		gauge(m.inside, float64(s.inside.Load()))
		if !s.isUsed() {
			continue
		}
		gauge(m.paused, s.paused())
		gauge(m.oldestInside, s.holdAges.Oldest(now).Seconds())
		gauge(m.oldestWaiting, s.waitAges.Oldest(now).Seconds())
		if u := s.usage(); len(u.paths) > 0 {
			gauge(m.limit, float64(u.limit))
		}
	}
}

// meters is what one handler counts with. The label of its metrics is the prefix as
// configured, so their number does not grow with traffic.
type meters struct {
	*prefixStats
	waitTimes, holdTimes prometheus.Observer
}

// openMeters registers the metrics with the handler's configuration.
func (s *Handler) openMeters(ctx caddy.Context) error {
	set := metrics()
	if err := set.register(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	s.meters = newMeters(set, s.Prefix)
	return nil
}

func newMeters(set *metricSet, prefix string) *meters {
	return &meters{registered.statsOf(prefix), set.wait.WithLabelValues(prefix), set.hold.WithLabelValues(prefix)}
}

// startWait notes that a request has begun to wait.
func (m *meters) startWait(age *agelist.Entry, queue string, now time.Time) {
	m.waiting.Add(1)
	age.Queue = queue
	m.waitAges.Insert(age, now)
}

// endWait notes that it waits no longer.
func (m *meters) endWait(age *agelist.Entry, waited time.Duration) {
	m.waiting.Add(-1)
	m.waitTimes.Observe(waited.Seconds())
	m.waitAges.Remove(age)
}

// startHold notes that a request has entered.
func (m *meters) startHold(age *agelist.Entry, entered time.Time) {
	m.inside.Add(1)
	m.holdAges.Insert(age, entered)
}

// endHold notes that it has left.
func (m *meters) endHold(age *agelist.Entry, held time.Duration) {
	m.inside.Add(-1)
	m.holdTimes.Observe(held.Seconds())
	m.hold.add(held)
	m.holdAges.Remove(age)
}

// Interface guards
var _ prometheus.Collector = (*metricSet)(nil)
