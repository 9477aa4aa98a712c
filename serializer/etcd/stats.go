package etcd

import "time"

// Stats is how an engine fares with its cluster.
type Stats struct {
	// Lease is whether there is one; else all are refused.
	Lease bool

	// LeasesLost counts leases that ended while they were in use.
	LeasesLost uint64

	// KeepAliveAge is how long ago the last keep-alive was sent that was
	// answered. At four fifths of the time to live, the lease is given up.
	KeepAliveAge time.Duration

	// TTL is the time to live of the lease.
	TTL time.Duration

	// MemberSwitches counts how often another member was turned to, because
	// the one in use was silent or gone.
	MemberSwitches uint64

	// WatchLag is how long after the answer to a deletion the watch told of it,
	// the last time. Where it grows, hand-overs between machines do, too.
	WatchLag time.Duration

	// Path is the engine's; see [Engine.Path].
	Path string
}

// Stats tells how the engine fares.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{
		LeasesLost:     e.lost.Load(),
		TTL:            e.ttl,
		MemberSwitches: e.cluster.switches.Load(),
		WatchLag:       e.watchLag,
		Path:           e.Path(),
	}
	if e.session != nil {
		s.Lease, s.KeepAliveAge = true, e.clock()-e.session.renewed
	}
	return s
}
