package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// cluster is the members of etcd as this process reaches them. Requests go to the
// preferred member for as long as it answers.
//
// A member that is stopped or cut off does not refuse: its connection stands and
// is silent. gRPC notices that after 13 seconds at best. So a request without an
// answer soon goes to the next member as well, and the first answer counts. A
// member that was overtaken is no longer preferred: its watches end, and begin
// anew elsewhere. Requests must allow that they are carried out twice. All
// requests of this engine do.
type cluster struct {
	members   []*member
	patience  time.Duration // with a silent member
	preferred atomic.Int64  // index of a member
	switches  atomic.Uint64
}

// newCluster prepares the connections, which are opened when they are needed.
func newCluster(endpoints []string, config *tls.Config, username, password string, patience time.Duration) (*cluster, error) {
	c := &cluster{patience: patience}
	for _, endpoint := range endpoints {
		m, err := newMember(endpoint, config, username, password)
		if err != nil {
			c.close()
			return nil, err
		}
		c.members = append(c.members, m)
	}
	// Not all processes should lean on the first member.
	c.preferred.Store(rand.Int64N(int64(len(c.members))))
	return c, nil
}

func (c *cluster) close() {
	for _, m := range c.members {
		m.close()
	}
}

// patienceOf is how long a member may be silent, under a lease.
func patienceOf(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 200*time.Millisecond), 500*time.Millisecond)
}

func (c *cluster) current() *member { return c.members[c.preferred.Load()] }

// distrust prefers another member than m.
func (c *cluster) distrust(m *member) {
	for i, other := range c.members {
		if other == m {
			c.replace(int64(i), int64((i+1)%len(c.members)))
		}
	}
}

// replace prefers another member, unless that has changed meanwhile.
func (c *cluster) replace(from, to int64) {
	if c.preferred.CompareAndSwap(from, to) {
		if from != to {
			c.switches.Add(1)
		}
		c.members[from].dropFeeds(errDistrusted)
	}
}

var errDistrusted = errors.New("the member does not answer")

// answer is the answer of one member.
type answer[T any] struct {
	member int64
	value  T
	err    error
}

// ask returns the first answer of any member, beginning with the preferred one.
// The request may be carried out more than once. An error that every member would
// give is returned at once.
func ask[T any](ctx context.Context, c *cluster, request func(context.Context, *member) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := int64(len(c.members))
	first := c.preferred.Load()
	answers := make(chan answer[T], n)
	asked, open := int64(0), 0
	next := func() {
		i := (first + asked) % n
		asked++
		open++
		go func() {
			value, err := request(ctx, c.members[i])
			answers <- answer[T]{i, value, err}
		}()
	}
	next()
	patience := time.NewTimer(c.patience)
	defer patience.Stop()
	var faults faults
	for {
		select {
		case a := <-answers:
			open--
			if a.err == nil || !transient(a.err) {
				if a.member != first {
					c.replace(first, a.member)
				}
				return a.value, fault{c.members[a.member], a.err}.explained()
			}
			faults.add(c.members[a.member], a.err)
		case <-patience.C:
		case <-ctx.Done():
			var none T
			return none, faults.summary(ctx.Err())
		}
		switch {
		case asked < n:
			next()
			patience.Reset(c.patience)
		case open == 0:
			var none T
			return none, faults.summary(nil)
		}
	}
}

// transient reports whether an error can pass by itself: the member was away, had
// no leader, or did not answer.
func transient(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return true
	}
	return false
}

// denied reports whether etcd refuses the user, for now: somebody may set the
// password or the role right.
func denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrAuthFailed) || unauthenticated(err)
}

// codeOf finds the status of an answer.
func codeOf(err error) codes.Code {
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return known.Code()
	}
	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		return s.GRPCStatus().Code()
	}
	return codes.OK // not from a member
}

// faults are why members did not answer.
type faults struct{ list []fault }

type fault struct {
	member *member
	err    error
}

func (f *faults) add(m *member, err error) { f.list = append(f.list, fault{m, err}) }

// summary is one error for all. ended is why the wait ended, or nil if all members
// have failed.
func (f *faults) summary(ended error) error {
	switch {
	case len(f.list) == 0:
		return ended
	case len(f.list) == 1:
		return f.list[0].explained()
	}
	errs := make([]error, len(f.list))
	for i, fault := range f.list {
		errs[i] = fault.explained()
	}
	return &severalFaults{errs}
}

// severalFaults is errors.Join on one line.
type severalFaults struct{ errs []error }

func (s *severalFaults) Error() string {
	texts := make([]string, len(s.errs))
	for i, err := range s.errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (s *severalFaults) Unwrap() []error { return s.errs }

// explained names the member, and says first what the error means, where that is
// known.
func (f fault) explained() error {
	if f.err == nil {
		return nil
	}
	if hint := hintFor(f.err, f.member.secure()); hint != "" {
		return fmt.Errorf("member %s: %s: %w", f.member.endpoint, hint, f.err)
	}
	return fmt.Errorf("member %s: %w", f.member.endpoint, f.err)
}

// diagnose finds out more about members that closed a connection without a word. A
// member that refuses our certificate says so after the handshake. While we send,
// it is chance whether we read that before the connection breaks.
func (c *cluster) diagnose(err error) error {
	for _, m := range c.members {
		if !m.secure() || !strings.Contains(err.Error(), m.endpoint) || hintFor(err, true) != "" {
			continue
		}
		if found := m.listen(); found != nil && hintFor(found, true) != "" {
			return fmt.Errorf("%w; %w", fault{m, found}.explained(), err)
		}
	}
	return err
}
