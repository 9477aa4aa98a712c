package serialize

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// rules translates the settings into the engine's rules: for most requests, and for
// those with shared methods.
func rules(concurrency int, readers bool) (rule, shared serializer.Rule) {
	if !readers {
		return serializer.Rule{Limit: concurrency}, serializer.Rule{}
	}
	shared = serializer.Rule{Shared: true}
	if concurrency > 1 {
		shared.Limit = concurrency
	}
	return serializer.Rule{Limit: 1}, shared
}

// arrival is what the handler asks of a queue for a request.
func (s *Handler) arrival(r *http.Request, queue string) serializer.Arrival {
	a := serializer.Arrival{
		Queue:      queue,
		Client:     clientOf(r),
		Rule:       s.rule,
		MaxWaiting: s.QueueLength,
		DropOldest: s.WhenFull == dropOldest,
		Group:      s.pauseGroup,
		Timeout:    time.Duration(*s.Timeout),
	}
	if s.isReader(r) {
		a.Rule = s.shared
	}
	return a
}

func (s *Handler) isReader(r *http.Request) bool { return slices.Contains(s.SharedMethods, r.Method) }

// clientOf is the address of the connection's peer, or the zero value without IP.
func clientOf(r *http.Request) netip.AddrPort {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.AddrPort{}
	}
	return addr
}
