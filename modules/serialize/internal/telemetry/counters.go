package telemetry

import (
	"sync"
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

	Outcomes             map[string]*Outcome // what has become of the requests; all are there from the beginning
	waitTimes, holdTimes prometheus.Observer

	mu      sync.Mutex // guards the history
	samples []Sample   // of the last ten minutes, which take 1.5 KB; the latest comes last
	refused uint32     // until the latest
}

// NewCounters returns the counters of a prefix, which is the label of its metrics.
func NewCounters(prefix string) *Counters {
	s := &Counters{
		Prefix: prefix, Outcomes: make(map[string]*Outcome),
		waitTimes: WaitTimes.WithLabelValues(prefix), holdTimes: HoldTimes.WithLabelValues(prefix),
	}
	for _, name := range Outcomes {
		s.Outcomes[name] = new(Outcome)
	}
	return s
}

// Forget removes the series of a prefix, unless something was counted.
func (s *Counters) Forget() bool {
	for _, o := range s.Outcomes {
		if o.Count.Load() > 0 {
			return false
		}
	}
	WaitTimes.DeleteLabelValues(s.Prefix)
	HoldTimes.DeleteLabelValues(s.Prefix)
	return true
}

// Outcome is how many requests had an outcome, and when a refused one last had it, in nanoseconds since
// 1970.
type Outcome struct{ Count, Refused atomic.Int64 }

// Count notes a request's outcome.
func (s *Counters) Count(outcome string) { s.Outcomes[outcome].Count.Add(1) }
