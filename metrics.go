package orderly

import (
	"errors"
	"fmt"
	"sync"

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
}

var vectors = sync.OnceValue(func() *metricVectors {
	const namespace = "caddy_serialize"
	labels := []string{"queue"}
	// 100 microseconds to a minute and more.
	buckets := prometheus.ExponentialBuckets(0.0001, 4, 11)
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
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "wait_seconds", Help: "Time spent waiting in line.", Buckets: buckets,
		}, labels),
		hold: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "hold_seconds", Help: "Time spent inside.", Buckets: buckets,
		}, labels),
	}
})

// register makes the metrics part of a configuration's registry.
func (m *metricVectors) register(registry *prometheus.Registry) error {
	for _, c := range []prometheus.Collector{m.requests, m.waiting, m.inside, m.wait, m.hold} {
		err := registry.Register(c)
		if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !again {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// meters are the metrics of one handler. Their label is the prefix as it is
// configured, so their number does not grow with traffic.
type meters struct {
	outcomes   map[string]prometheus.Counter
	waiting    prometheus.Gauge
	inside     prometheus.Gauge
	wait, hold prometheus.Observer
	recent     *recent // of the record; nil before the handler is provisioned
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
