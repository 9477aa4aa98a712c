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
// lost: the script then finds its tag in the log, and does not carry it out twice.
type request struct {
	mode, tag  string
	operations []string // letters and arguments
	appends    bool     // the session expects its tickets
}

func newRequest(mode string, operations ...string) request {
	return request{mode: mode, tag: rand.Text(), operations: operations}
}

// entry is one of the log: what a request has changed.
type entry struct {
	version uint64
	tag     string
	changes []string
}

// by reports whether a request has made the entry.
func (e entry) by(r request) bool { return strings.HasPrefix(e.tag, r.tag+".") }

func parseEntry(version, body string) (e entry) {
	e.version, _ = strconv.ParseUint(version, 10, 64)
	e.tag, body, _ = strings.Cut(body, "\n")
	e.changes = strings.Split(body, "\n")
	return e
}

// answer is what the script says.
type answer struct {
	status          string // ok, or why it has not carried out the operations
	entries         []entry
	tickets, pauses map[string]string // of a session that begins
}

// arguments are those of the script. There are none if the log has already shown what the
// request was for: then the answer was lost.
func (s *session) arguments(r request) (args []any) {
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if r.appends && s.sent[r.tag] == nil {
		return nil
	}
	args = []any{r.mode, s.id, st.ttl.Microseconds(), s.version, s.tag, r.tag, st.known, st.keys.channel}
	for _, o := range r.operations {
		args = append(args, o)
	}
	return args
}

// call sends a request once.
func (s *session) call(ctx context.Context, r request) (a answer, err error) {
	args := s.arguments(r)
	if args == nil {
		return answer{status: "ok"}, nil
	}
	values, err := s.store.servers.run(ctx, args...)
	if err != nil {
		return a, err
	}
	a.status = values[0].(string)
	for list := texts(values[1]); len(list) > 1; list = list[2:] {
		a.entries = append(a.entries, parseEntry(list[0], list[1]))
	}
	if r.mode == "begin" {
		a.tickets, a.pauses = pairs(values[2]), pairs(values[3])
	}
	return a, nil
}

// texts are those in a list of Redis.
func texts(value any) (list []string) {
	values, _ := value.([]any)
	for _, v := range values {
		text, _ := v.(string)
		list = append(list, text)
	}
	return list
}

// pairs are the fields of a hash.
func pairs(value any) map[string]string {
	hash := make(map[string]string)
	for list := texts(value); len(list) > 1; list = list[2:] {
		hash[list[0]] = list[1]
	}
	return hash
}

// send sends a request until the script has carried it out, and reports all changes up
// to its own, which it returns. While nobody may get a ticket, it returns errClosed if
// the request asks for one.
func (s *session) send(ctx context.Context, r request) (own []string, err error) {
	for {
		a, err := s.call(ctx, r)
		if err != nil {
			return nil, err
		}
		s.report(a.entries)
		switch a.status {
		case "history":
			s.lease.End(errOtherHistory)
		case "ended":
			s.lease.End(lease.ErrEnded)
		}
		if s.ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", errSession, context.Cause(s.ctx))
		}
		switch a.status {
		case "closed":
			return nil, errClosed
		case "ok":
			for _, e := range a.entries {
				if e.by(r) {
					own = e.changes
				}
			}
			return own, nil
		}
	}
}

// errClosed means that nobody gets a ticket yet, because another server answers, or the
// namespace is new.
var errClosed = errors.New("others may hold turns of which this server does not know, because it was restarted, has taken over, or is new")
