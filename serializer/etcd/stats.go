package etcd

import "time"

// Stats is the state of an engine's connection to its cluster.
type Stats struct {
	// Lease is whether the engine has a lease. Without one, arrivals are refused.
	Lease bool

	// LeasesLost counts leases that ended while they were in use.
	LeasesLost uint64

	// KeepAliveAge is the time since the sending of the last answered keep-alive.
	// At four fifths of the time to live, the lease is given up.
	KeepAliveAge time.Duration

	// TTL is the time to live of the lease.
	TTL time.Duration

	// MemberSwitches counts how often the engine turned to another member,
	// because the one in use was silent or gone.
	MemberSwitches uint64

	// WatchLag is the time between the answer to the last deletion and the watch
	// event that reported it. Hand-overs between machines grow with it.
	WatchLag time.Duration

	// Path is the engine's; see [Engine.Path].
	Path string
}

// Stats returns the state of the connection to the cluster.
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
