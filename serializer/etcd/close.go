package etcd

import (
	"context"
	"fmt"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Close implements [serializer.Engine]. If no ticket is left, it revokes the lease;
// otherwise, the last ticket to leave does.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.announceLocked(e.failure)
	var revokes []func(error)
	if e.session != nil {
		revokes = e.session.dismissLocked(e.storageError("waiting in etcd", serializer.ErrClosed))
	}
	left := e.stopIfLeftLocked()
	e.mu.Unlock()
	for _, revoke := range revokes {
		revoke(serializer.ErrClosed)
	}
	if left {
		<-e.ended
	}
	return nil
}

// dismissLocked refuses all waiters, and returns the callbacks that revoke the
// turns of those inside.
func (s *session) dismissLocked(err error) (revokes []func(error)) {
	for _, t := range s.tickets {
		if t.granted {
			revokes = append(revokes, t.takeRevokeLocked())
			continue
		}
		s.rejectLocked(t, err)
	}
	return revokes
}

// ticketGoneLocked notes that one of our tickets has gone.
func (e *Engine) ticketGoneLocked() {
	e.tickets--
	e.stopIfLeftLocked()
}

// stopIfLeftLocked stops a closed engine without tickets.
func (e *Engine) stopIfLeftLocked() bool {
	if !e.closed || e.tickets > 0 {
		return false
	}
	e.stop()
	return true
}

// giveBack ends the last session. All keys that are not deleted yet go with the
// lease.
func (e *Engine) giveBack() {
	e.mu.Lock()
	s := e.session
	if s != nil {
		s.finishLocked()
	}
	e.mu.Unlock()
	if s != nil {
		if err := e.revoke(context.Background(), s.id); err != nil {
			e.log.Warn("the lease could not be revoked; it will expire", "namespace", string(e.keys), "lease", fmt.Sprintf("%x", s.id), "error", err)
		}
	}
	e.cluster.close()
}
