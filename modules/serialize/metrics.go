package serialize

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Outcomes of requests that are no refusals.
const (
	outcomeEntered = "entered"
	outcomeSkipped = "skipped"
)

// outcomeInside is the outcome of a request that was inside, by the cause its
// stay ended early for, if any.
func outcomeInside(cause error) string {
	switch {
	case errors.Is(cause, serializer.ErrLost):
		return string(serializer.ReasonLost)
	case errors.Is(cause, serializer.ErrEvicted):
		return string(serializer.ReasonEvicted)
	}
	return outcomeEntered
}

// metricVectors are the metrics of all queues. There is one set of them in a
// process: each configuration has a registry of its own, and what was counted
// must not be lost with the old one.
type metricVectors struct {
	requests *prometheus.CounterVec
	waiting  *prometheus.GaugeVec
	inside   *prometheus.GaugeVec
	wait     *prometheus.HistogramVec
	hold     *prometheus.HistogramVec
	now      statsCollector
}

var vectors = sync.OnceValue(func() *metricVectors {
	const namespace = "caddy_serialize"
	labels := []string{"queue"}
	seconds := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help,
			// 100 microseconds to five minutes, with edges at the usual timeouts.
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
			// Servers that ask for native histograms get these beside.
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}
	}
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &metricVectors{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "requests_total", Help: "Requests by what became of them.",
		}, []string{"queue", "outcome"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "waiting", Help: "Requests of this process that wait in line.",
		}, labels),
		inside: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "inside", Help: "Requests of this process that are inside.",
		}, labels),
		wait: prometheus.NewHistogramVec(seconds("wait_seconds", "Time spent waiting in line."), labels),
		hold: prometheus.NewHistogramVec(seconds("hold_seconds", "Time spent inside."), labels),
		now: statsCollector{
			limit:         gauge("limit", "How many requests may be inside of a queue; 0 is no limit."),
			oldestInside:  gauge("oldest_inside_seconds", "For how long the request of this process that entered first has been inside; 0 if there is none."),
			oldestWaiting: gauge("oldest_waiting_seconds", "For how long the request of this process that came first has waited; 0 if there is none."),
		},
	}
})

// register makes the metrics part of a configuration's registry.
func (m *metricVectors) register(registry *prometheus.Registry) error {
	for _, c := range []prometheus.Collector{m.requests, m.waiting, m.inside, m.wait, m.hold, m.now} {
		err := registry.Register(c)
		if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !again {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// statsCollector answers with what the records know when they are asked: an age
// grows while nothing happens.
type statsCollector struct{ limit, oldestInside, oldestWaiting *prometheus.Desc }

// Describe implements [prometheus.Collector].
func (c statsCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.limit
	to <- c.oldestInside
	to <- c.oldestWaiting
}

// Collect implements [prometheus.Collector].
func (c statsCollector) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	for _, r := range allStats() {
		gauge := func(desc *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, r.prefix)
		}
		if limit, known := r.limit(); known {
			gauge(c.limit, float64(limit))
		}
		gauge(c.oldestInside, r.inside.oldest(now).Seconds())
		gauge(c.oldestWaiting, r.waiting.oldest(now).Seconds())
	}
}

// meters are the metrics of one handler. Their label is the prefix as it is
// configured, so their number does not grow with traffic.
type meters struct {
	outcomes   map[string]prometheus.Counter
	waiting    prometheus.Gauge
	inside     prometheus.Gauge
	wait, hold prometheus.Observer
	stats      *prefixStats  // nil before the handler is provisioned
	holds      *holdEstimate // of the record, for the handler's directory
}

func newMeters(m *metricVectors, queue string) *meters {
	outcomes := make(map[string]prometheus.Counter)
	for _, outcome := range []string{
		outcomeEntered, outcomeSkipped,
		string(serializer.ReasonTimeout), string(serializer.ReasonFull), string(serializer.ReasonGone),
		string(serializer.ReasonStorage), string(serializer.ReasonLost), string(serializer.ReasonEvicted),
	} {
		outcomes[outcome] = m.requests.WithLabelValues(queue, outcome)
	}
	return &meters{
		outcomes: outcomes,
		waiting:  m.waiting.WithLabelValues(queue),
		inside:   m.inside.WithLabelValues(queue),
		wait:     m.wait.WithLabelValues(queue),
		hold:     m.hold.WithLabelValues(queue),
	}
}

// count notes what became of a request.
func (m *meters) count(outcome string) { m.outcomes[outcome].Inc() }
