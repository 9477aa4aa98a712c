package etcd

import (
	"strconv"
	"strings"
)

// A mark tells the next one in line that a ticket has gone, and how. It is a
// key beside the ticket's, put by the transaction that deletes the ticket; its
// value is
//
//	left <revision>    the ticket was inside, alone: nobody before it is left
//	gone <revision>    it was given up; whoever stood before it may still do
//
// Without it, the next one would have to look at the queue before it enters:
// that a ticket is gone says nothing of those before it. Marks hang on the
// lease, too, and are deleted when the process forgets the queue.
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

// parseMark reads a mark. One that cannot be read tells nothing.
func parseMark(value []byte) (m mark, ok bool) {
	how, text, _ := strings.Cut(string(value), " ")
	rev, err := strconv.ParseInt(text, 10, 64)
	return mark{rev, how == "left"}, err == nil && (how == "left" || how == "gone")
}
