package etcd

import "time"

// Stats is the state of an engine's connection to its cluster.
type Stats struct {
	// Lease reports whether the engine has a lease. Without one, nobody enters.
	Lease bool

	// LeasesLost counts leases that ended while they were in use.
	LeasesLost uint64

	// KeepAliveAge is the time since the sending of the last answered keep-alive. At
	// four fifths of the time to live (at least half a second before its end), the lease
	// is given up.
	KeepAliveAge time.Duration

	// TTL is the time to live of the lease.
	TTL time.Duration

	// MemberSwitches counts how often the engine switched to another member, because the
	// one in use was silent or gone.
	MemberSwitches uint64

	// WatchLag is the time between the answer to the last deletion and the watch event
	// that reported it. The longer it is, the slower are hand-overs between machines.
	WatchLag time.Duration

	// Path is that of [Engine.Path].
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
