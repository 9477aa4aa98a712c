package etcd

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

// engines are the engines in use in this process, and the final counts of closed ones.
// Each configuration has a separate metrics registry, and engines outlive configurations.
var engines = &engineSet{
	open:   make(map[*etcd.Engine]struct{}),
	closed: make(map[string]counts),
}

type engineSet struct {
	mu     sync.Mutex
	open   map[*etcd.Engine]struct{}
	closed map[string]counts // by path
}

// counts only grow.
type counts struct{ lost, switches uint64 }

func (c counts) and(s etcd.Stats) counts {
	return counts{c.lost + s.LeasesLost, c.switches + s.MemberSwitches}
}

// measured is an engine that is included in the metrics until it is closed.
type measured struct{ *etcd.Engine }

func (s *engineSet) add(e *etcd.Engine) measured {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[e] = struct{}{}
	return measured{e}
}

// Close implements [serializer.Engine].
func (m measured) Close() error {
	engines.remove(m.Engine)
	return m.Engine.Close()
}

func (s *engineSet) remove(e *etcd.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[e]; !ok {
		return
	}
	delete(s.open, e)
	stats := e.Stats()
	s.closed[stats.Path] = s.closed[stats.Path].and(stats)
}

// Metrics of the etcd engine. The label is etcd:<namespace>, so the number of series does
// not grow with traffic. If several engines of the process use one namespace, gauges show
// the worst of them.
var (
	leaseMetric    = describe("lease", "1 while all engines of the namespace have a lease; otherwise, requests are refused.")
	lostMetric     = describe("leases_lost_total", "Leases that ended while they were in use.")
	ageMetric      = describe("keepalive_age_seconds", "Time since the last answered keep-alive was sent.")
	ttlMetric      = describe("ttl_seconds", "Time to live of the lease.")
	switchesMetric = describe("member_switches_total", "Switches to another member because the one in use was silent or gone.")
	lagMetric      = describe("watch_lag_seconds", "Time between the answer to this process's last deletion and the watch event that reported it.")
)

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("caddy_serialize_etcd_"+name, help, []string{"path"}, nil)
}

// Describe implements [prometheus.Collector].
func (s *engineSet) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaseMetric, lostMetric, ageMetric, ttlMetric, switchesMetric, lagMetric} {
		descs <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *engineSet) Collect(metrics chan<- prometheus.Metric) {
	totals, worst := s.sum()
	for path, n := range totals {
		metrics <- prometheus.MustNewConstMetric(lostMetric, prometheus.CounterValue, float64(n.lost), path)
		metrics <- prometheus.MustNewConstMetric(switchesMetric, prometheus.CounterValue, float64(n.switches), path)
	}
	for path, w := range worst {
		lease := 0.0
		if w.Lease {
			lease = 1
		}
		for desc, value := range map[*prometheus.Desc]float64{
			leaseMetric: lease,
			ageMetric:   w.KeepAliveAge.Seconds(),
			ttlMetric:   w.TTL.Seconds(),
			lagMetric:   w.WatchLag.Seconds(),
		} {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, path)
		}
	}
}

// sum adds up the counts of engines with the same path, and takes the worst of their
// gauges.
func (s *engineSet) sum() (totals map[string]counts, worst map[string]etcd.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals, worst = make(map[string]counts), make(map[string]etcd.Stats)
	for path, n := range s.closed {
		totals[path] = n
	}
	for e := range s.open {
		stats := e.Stats()
		totals[stats.Path] = totals[stats.Path].and(stats)
		w, seen := worst[stats.Path]
		if !seen {
			worst[stats.Path] = stats
			continue
		}
		w.Lease = w.Lease && stats.Lease
		w.KeepAliveAge = max(w.KeepAliveAge, stats.KeepAliveAge)
		w.TTL = min(w.TTL, stats.TTL)
		w.WatchLag = max(w.WatchLag, stats.WatchLag)
		worst[stats.Path] = w
	}
	return totals, worst
}

// register adds the metrics to a configuration's registry.
func (s *engineSet) register(registry *prometheus.Registry) error {
	err := registry.Register(s)
	if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !again {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}
