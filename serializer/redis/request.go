package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

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

// maxPending bounds what one request carries out besides, and so the time of the script.
const maxPending = 256

// arguments are those of the script. Each request takes along what is pending: in a busy
// queue, callers often leave and return at once. There are no arguments if the log has
// already shown what the request was for.
func (s *session) arguments(r request) (args []any, p lease.Pending) {
	st := s.store
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if s.made[r.tag] {
		return nil, p
	}
	args = []any{r.mode, s.id, st.TTL.Microseconds(), s.version, s.tag, r.tag, st.known, st.servers.keys.channel}
	p = s.TakeLocked(maxPending)
	for _, number := range p.Leaving {
		args = append(args, "r", number)
	}
	for _, t := range p.Inside {
		args = append(args, "i", t.Key)
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
		answer, err := s.store.servers.run(ctx, s.store.servers.client(), args...)
		if err != nil {
			s.Again(pending)
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
			return nil
		}
		s.Again(pending)
	}
}

// persist sends a request until the script has carried it out or refused it for good, or
// ctx is done.
func (s *session) persist(ctx context.Context, r request) error {
	s.store.Mu.Lock()
	s.made[r.tag] = false
	s.store.Mu.Unlock()
	defer func() {
		s.store.Mu.Lock()
		defer s.store.Mu.Unlock()
		delete(s.made, r.tag)
	}()
	for closed := false; ; {
		err := s.send(s.Ctx, r)
		switch {
		case err == nil || !transient(err):
			return err
		case s.Ctx.Err() != nil:
			return context.Cause(s.Ctx)
		case errors.Is(err, errClosed) && !closed:
			closed = true
			s.store.Log.Info("nobody is let in for now", "path", s.store.Path(), "reason", err)
		}
		lease.Sleep(ctx, lease.RetryPause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
