package once

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// The outcomes of requests that the handler does not answer itself.
const (
	outcomeFirst    = "first"
	outcomeRepeated = "repeated"
	outcomeFreed    = "freed"
)

// The metrics are those of all configurations: counters never fall.
var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "once", Name: "requests_total", Help: "Requests with a key, by outcome.",
	}, []string{"outcome"})
	stored = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "once", Name: "stored_bytes_total", Help: "Bytes of records that were written to the storage.",
	})
)

// registerMetrics adds the metrics to a configuration's registry, with all outcomes.
func registerMetrics(registry *prometheus.Registry) error {
	for _, outcome := range []string{outcomeFirst, outcomeRepeated, outcomeFreed} {
		requests.WithLabelValues(outcome)
	}
	for _, why := range reasons {
		requests.WithLabelValues(why.name)
	}
	for _, c := range []prometheus.Collector{requests, stored} {
		err := registry.Register(c)
		if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !again {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}
