package etcd

import (
	"strconv"
	"strings"
)

// A mark tells the next waiter that a ticket has gone, and how. It is a separate key, put
// by the transaction that deletes the ticket. Its value is
//
//	left <revision>    the ticket was inside alone: no ticket before it is left
//	gone <revision>    its caller gave up; tickets before it may still exist
//
// Without the mark, the next waiter would have to read the queue before it enters: a
// missing ticket says nothing about the tickets before it. Marks belong to the lease,
// too, and are deleted when the process forgets the queue.
type mark struct {
	rev  int64
	left bool
}

func (m mark) String() string {
	if m.left {
		return "left " + strconv.FormatInt(m.rev, 10)
	}
	return "gone " + strconv.FormatInt(m.rev, 10)
}

// parseMark parses a mark. ok is false if it is unreadable.
func parseMark(value []byte) (m mark, ok bool) {
	how, text, _ := strings.Cut(string(value), " ")
	rev, err := strconv.ParseInt(text, 10, 64)
	return mark{rev, how == "left"}, err == nil && (how == "left" || how == "gone")
}
