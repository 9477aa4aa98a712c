package serialize

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// queueMetrics are the metrics of all queues that are collected when they are asked for.
type queueMetrics struct{}

func describe(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(telemetry.Namespace, "", name), help, append([]string{"queue"}, more...), nil)
}

var (
	metricRequests      = describe("requests_total", "Requests by outcome.", "outcome")
	metricWaiting       = describe("waiting", "Requests of this process that wait in the queue.")
	metricInside        = describe("inside", "Requests of this process that are inside.")
	metricPaused        = describe("paused", "1 if the queue is paused, or all queues of a prefix with placeholders; else 0.")
	metricLimit         = describe("limit", "How many requests may be inside a queue; 0 is no limit.")
	metricOldestInside  = describe("oldest_inside_seconds", "How long the first request of this process has been inside; 0 if there is none.")
	metricOldestWaiting = describe("oldest_waiting_seconds", "How long the first request of this process has waited; 0 if there is none.")
)

var collectors = []prometheus.Collector{telemetry.WaitTimes, telemetry.HoldTimes, queueMetrics{}}

// registerMetrics adds the metrics to a configuration's registry.
func registerMetrics(registry *prometheus.Registry) error {
	for _, c := range collectors {
		err := registry.Register(c)
		if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !again {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// Describe implements [prometheus.Collector].
func (queueMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{metricRequests, metricWaiting, metricInside, metricLimit, metricPaused, metricOldestInside, metricOldestWaiting} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector]. Ages are computed here, since they grow while
// nothing happens.
func (queueMetrics) Collect(to chan<- prometheus.Metric) {
	ages := oldest(time.Now())
	for _, s := range registered.allPrefixes() {
		gauge := func(desc *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.Prefix)
		}
		for name, outcome := range s.Outcomes {
			to <- prometheus.MustNewConstMetric(metricRequests, prometheus.CounterValue, float64(outcome.Count.Load()), s.Prefix, name)
		}
		gauge(metricWaiting, float64(s.Waiting.Load()))
		gauge(metricInside, float64(s.Inside.Load()))
		if !s.isUsed() {
			continue
		}
		gauge(metricOldestInside, ages[ageOf{s.Prefix, serializer.StateInside}].Seconds())
		gauge(metricOldestWaiting, ages[ageOf{s.Prefix, serializer.StateWaiting}].Seconds())
		usage, paths := usageOf(s.handlers())
		gauge(metricPaused, map[bool]float64{true: 1}[usage.PausedUntil != nil])
		if len(paths) > 0 {
			gauge(metricLimit, float64(usage.Limit))
		}
	}
}
