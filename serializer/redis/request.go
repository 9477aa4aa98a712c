package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// request is what a process asks of the script. It may be sent again if the answer is
// lost: the script or the process then finds its tag in the log, and nothing is done again.
type request struct {
	mode, tag  string
	operations []any // letters and arguments
}

func newRequest(mode string, operations ...any) request {
	return request{mode: mode, tag: rand.Text(), operations: operations}
}

// entry is one of the log: what a request has changed.
type entry struct {
	version     uint64
	tag, before string // its own tag, and that of the entry before
	request     string // the tag of the request that has made it
	changes     []string
}

func parseEntry(version, text string) (e entry) {
	e.version, _ = strconv.ParseUint(version, 10, 64)
	head, body, _ := strings.Cut(text, "\n")
	e.tag, e.before, _ = strings.Cut(head, " ")
	e.request, _, _ = strings.Cut(e.tag, ".")
	e.changes = strings.Split(body, "\n")
	return e
}

// ticketID identifies a ticket of a request, by its place among these.
func ticketID(request string, i int) string { return fmt.Sprintf("%s/%d", request, i) }

// maxPending bounds how many tickets one request takes out, and how many it marks, and so the
// time of the script.
const maxPending = 256

// pending are tickets that a request takes along, each kind at most [maxPending].
type pending struct {
	removals []string
	marks    []string // that are inside
}

// again keeps what was not carried out for another request.
func (s *session) again(p pending) {
	s.LeaveAgain(p.removals)
	s.mark(p.marks...)
}

// mark has the next request mark tickets as inside.
func (s *session) mark(keys ...string) {
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	if s.marks = append(s.marks, keys...); len(s.marks) > 0 {
		s.Wake()
	}
}

// arguments are those of the script. Each request takes along what is pending: in a busy
// queue, callers often leave and return at once. There are no arguments if the log has
// already shown what the request was for.
func (s *session) arguments(r request) (args []any, p pending) {
	st := s.store
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if s.made[r.tag] != nil {
		return nil, p
	}
	args = []any{r.mode, s.id, st.TTL.Microseconds(), s.version, s.tag, r.tag, st.known, st.keys.channel, time.Now().UnixMicro()}
	p.removals = s.TakeLeavingLocked(maxPending)
	for _, number := range p.removals {
		args = append(args, "r", number)
	}
	n := min(len(s.marks), maxPending)
	p.marks, s.marks = s.marks[:n:n], s.marks[n:]
	for _, number := range p.marks {
		args = append(args, "i", number)
	}
	if len(s.Leaving)+len(s.marks) > 0 {
		s.Wake()
	}
	return append(args, r.operations...), p
}

// errClosed means that nobody gets a ticket yet.
var errClosed = errors.New("others may hold turns of which this server does not know, because it was restarted, has taken over, or is new")

// send sends a request until it gets an answer that is complete, and reports all changes
// that it contains.
func (s *session) send(ctx context.Context, r request) error {
	for {
		args, pending := s.arguments(r)
		if args == nil {
			return nil
		}
		number := s.sent.Add(1)
		answer, err := s.store.servers.run(ctx, args...)
		if err != nil {
			s.again(pending)
			return err
		}
		for list := answer[1:]; len(list) > 1; list = list[2:] {
			if s.report(parseEntry(list[0], list[1])) {
				s.End(errOtherHistory) // answers have no gaps
			}
		}
		switch answer[0] {
		case "ok", "closed", "again":
			s.store.heard.Store(int64(lease.Uptime()))
		case "history":
			s.End(errOtherHistory)
		case "missed":
			s.End(errMissed)
		case "ended":
			s.End(lease.ErrEnded)
		}
		switch {
		case s.Ctx.Err() != nil && r.mode != "end":
			return context.Cause(s.Ctx)
		case answer[0] == "closed":
			return errClosed
		case answer[0] == "ok":
			s.answered.Store(number)
			return nil
		}
		s.again(pending)
	}
}

// persist sends a request until the script has carried it out or refused it for good, or
// ctx is done. It returns the changes that the request has made.
func (s *session) persist(ctx context.Context, r request) (own []string, err error) {
	s.store.Mu.Lock()
	s.made[r.tag] = nil
	s.store.Mu.Unlock()
	defer func() {
		s.store.Mu.Lock()
		defer s.store.Mu.Unlock()
		own = s.made[r.tag]
		delete(s.made, r.tag)
	}()
	for closed := false; ; {
		err = s.send(s.Ctx, r)
		switch {
		case err == nil || !transient(err):
			return nil, err
		case s.Ctx.Err() != nil:
			return nil, context.Cause(s.Ctx)
		case errors.Is(err, errClosed) && !closed:
			closed = true
			s.store.Log.Info("nobody is let in for now", "path", s.store.Path(), "reason", err)
		}
		lease.Sleep(ctx, lease.RetryPause)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}
