package etcd

import (
	"cmp"
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

// cluster is the members of etcd. Requests go to the preferred member while it answers.
//
// A member that is stopped or cut off does not refuse requests: its connection stays open
// and silent. gRPC needs at least 13 seconds to notice. So a request that is not answered
// soon also goes to the next member, and the first answer counts. If another member
// answers first, it becomes the preferred one; the watches at the old one end, and are
// begun again. So every request must tolerate being carried out twice. All requests of
// this engine do.
type cluster struct {
	members   []*member
	patience  time.Duration // how long to wait before asking another member
	preferred atomic.Int64  // index of a member
	switches  atomic.Uint64
}

// newCluster prepares the connections. They are opened when they are first needed.
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
	// Spread the load of all processes over the members.
	c.preferred.Store(rand.Int64N(int64(len(c.members))))
	return c, nil
}

func (c *cluster) close() {
	for _, m := range c.members {
		m.close()
	}
}

// patienceOf is how long a member may be silent, given the time to live of the lease.
func patienceOf(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 200*time.Millisecond), 500*time.Millisecond)
}

// distrust makes another member the preferred one.
func (c *cluster) distrust(i int64) { c.replace(i, (i+1)%int64(len(c.members))) }

// replace changes the preferred member, unless it has changed in the meantime.
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

// ask returns the first answer of any member, starting with the preferred one. The
// request may be carried out more than once. An error that every member would give is
// returned at once.
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
	var none T
	var failed error // why members did not answer, on one line
	for {
		select {
		case a := <-answers:
			open--
			if a.err == nil || !transient(a.err) {
				if a.member != first {
					c.replace(first, a.member)
				}
				return a.value, c.members[a.member].explain(a.err)
			}
			err := c.members[a.member].explain(a.err)
			if failed != nil {
				err = fmt.Errorf("%w; %w", failed, err)
			}
			failed = err
		case <-patience.C:
		case <-ctx.Done():
			return none, cmp.Or(failed, ctx.Err())
		}
		switch {
		case asked < n:
			next()
			patience.Reset(c.patience)
		case open == 0:
			return none, failed
		}
	}
}

// transient reports whether an error may pass by itself: the member was gone, had no
// leader, or did not answer.
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

// denied reports whether etcd refuses the user. That may pass: somebody may correct the
// password or the role.
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

// explain adds the member to its error, preceded by an explanation if there is one.
func (m *member) explain(err error) error {
	if err == nil {
		return nil
	}
	if hint := hintFor(err, m.secure()); hint != "" {
		return fmt.Errorf("member %s: %s: %w", m.endpoint, hint, err)
	}
	return fmt.Errorf("member %s: %w", m.endpoint, err)
}

// diagnose finds out more about members that closed a connection without an error. A
// member that rejects our certificate says so after the handshake. If we are sending at
// that moment, the connection may break before we have read that.
func (c *cluster) diagnose(err error) error {
	for _, m := range c.members {
		if !m.secure() || !strings.Contains(err.Error(), m.endpoint) || hintFor(err, true) != "" {
			continue
		}
		if found := m.listen(); found != nil && hintFor(found, true) != "" {
			return fmt.Errorf("%w; %w", m.explain(found), err)
		}
	}
	return err
}
