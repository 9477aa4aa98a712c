package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Outcomes of requests other than refusals.
const (
	OutcomeEntered    = "entered"
	OutcomeSkipped    = "skipped"
	OutcomeWouldEnter = "would_enter"
	OutcomeWouldWait  = "would_wait"
	OutcomeVisiting   = "visiting" // it has passed by the visit of its browser
)

// ReasonVisitEnded is the refusal of a request whose browser believes that its visit goes on.
const ReasonVisitEnded serializer.Reason = "visit_ended"

// Outcomes are all outcomes of requests.
var Outcomes = func() []string {
	all := []string{OutcomeEntered, OutcomeSkipped, OutcomeWouldEnter, OutcomeWouldWait, OutcomeVisiting, string(ReasonVisitEnded)}
	for _, reason := range serializer.Reasons() {
		all = append(all, string(reason))
	}
	return all
}()

// WaitTimes and HoldTimes are histograms with the label queue. A process has one of each:
// a configuration has a registry of its own, and what was counted must survive it.
var (
	WaitTimes = histogram("wait_seconds", "Time spent waiting in the queue.")
	HoldTimes = histogram("hold_seconds", "Time spent inside.")
)

// Namespace begins the names of all metrics.
const Namespace = "caddy_serialize"

func histogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: Namespace, Name: name, Help: help,
		// 100 microseconds to five minutes, with bounds at the usual timeouts.
		Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		// In addition, for servers that ask for native histograms.
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"queue"})
}

// Counters is what is counted of the requests of one prefix as configured. Requests are
// counted here and nowhere else. The collector of the handlers makes metrics of most counts.
type Counters struct {
	Prefix          string
	Waiting, Inside atomic.Int64
	Hold            Estimate

	outcomes             map[string]*outcome // all are there from the beginning
	waitTimes, holdTimes prometheus.Observer
	history              history
}

// NewCounters returns the counters of a prefix, which is the label of its metrics.
func NewCounters(prefix string) *Counters {
	s := &Counters{
		Prefix: prefix, outcomes: make(map[string]*outcome),
		waitTimes: WaitTimes.WithLabelValues(prefix), holdTimes: HoldTimes.WithLabelValues(prefix),
	}
	for _, name := range Outcomes {
		s.outcomes[name] = new(outcome)
	}
	return s
}

// Forget removes the series of a prefix, unless something was counted.
func (s *Counters) Forget() bool {
	for _, o := range s.outcomes {
		if o.count.Load() > 0 {
			return false
		}
	}
	WaitTimes.DeleteLabelValues(s.Prefix)
	HoldTimes.DeleteLabelValues(s.Prefix)
	return true
}

// outcome is an [Outcome]; the time is in nanoseconds since 1970.
type outcome struct{ count, refused atomic.Int64 }

// Count notes a request's outcome.
func (s *Counters) Count(outcome string) { s.outcomes[outcome].count.Add(1) }

// Outcome is how many requests had an outcome, and when a refused one last had it.
type Outcome struct {
	Count   int64
	Refused time.Time // 1970 if none was
}

// Outcomes are what has become of the requests.
func (s *Counters) Outcomes() map[string]Outcome {
	all := make(map[string]Outcome)
	for name, o := range s.outcomes {
		all[name] = Outcome{o.count.Load(), time.Unix(0, o.refused.Load())}
	}
	return all
}
