package enginetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// model is the promise in its simplest form: the expected state after each
// step.
type model struct {
	arrivals []*expected
}

// expected is what should become of one visitor.
type expected struct {
	queue    string
	rule     serializer.Rule
	position int
	most     int // more that wait supersede it
	inside   bool
	end      string // how it ended; empty for one that has its ticket
}

// tickets are those of a queue, in order.
func (m *model) tickets(queue string) (tickets []*expected) {
	for _, e := range m.arrivals {
		if e.queue == queue && e.end == "" {
			tickets = append(tickets, e)
		}
	}
	return tickets
}

// arrive adds a visitor behind all others.
func (m *model) arrive(a serializer.Arrival) {
	tickets := m.tickets(a.Queue)
	waiting := 0
	for _, t := range tickets {
		if !t.inside {
			waiting++
		}
	}
	e := &expected{queue: a.Queue, rule: a.Rule, position: len(tickets)}
	m.arrivals = append(m.arrivals, e)
	switch {
	case a.DropOldest:
		e.most = a.MaxWaiting
	case a.MaxWaiting > 0 && waiting >= a.MaxWaiting:
		e.end = string(serializer.ReasonFull)
	}
	m.admit(a.Queue)
}

// finish takes a visitor out.
func (m *model) finish(who int, end string) {
	e := m.arrivals[who]
	e.end = end
	m.admit(e.queue)
}

// admit lets in all whose turn it is, and refuses those that are superseded.
func (m *model) admit(queue string) {
	readers := 0
	tickets := m.tickets(queue)
	for ahead, t := range tickets {
		if !t.inside && !t.rule.Admits(ahead, readers) {
			m.supersede(queue, tickets[ahead:])
			return
		}
		t.inside = true
		if t.rule.Shared {
			readers++
		}
	}
}

// supersede refuses the first waiter with too many from itself to the end.
func (m *model) supersede(queue string, waiters []*expected) {
	for i, t := range waiters {
		if t.most > 0 && len(waiters)-i > t.most {
			t.end = string(serializer.ReasonSuperseded)
			m.admit(queue)
			return
		}
	}
}

// numbers are the visitors that are inside, and that wait.
func (m *model) numbers() (inside, waiting []int) {
	for i, e := range m.arrivals {
		switch {
		case e.end != "":
		case e.inside:
			inside = append(inside, i)
		default:
			waiting = append(waiting, i)
		}
	}
	return inside, waiting
}

// String describes the queues and each visitor.
func (m *model) String() string {
	var b strings.Builder
	queues := make(map[string]bool)
	for _, e := range m.arrivals {
		queues[e.queue] = true
	}
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		var list []string
		for _, t := range m.tickets(queue) {
			list = append(list, ticketText(slices.Index(m.arrivals, t), t.inside))
		}
		b.WriteString(queueText(queue, list))
	}
	for i, e := range m.arrivals {
		switch {
		case e.end != "" && e.end != endLeft:
			fmt.Fprintf(&b, "%d %s; ", i, e.end)
		case e.inside && e.end == "":
			fmt.Fprintf(&b, "%d entered at %d; ", i, e.position)
		}
	}
	return b.String()
}

const endLeft = "left"

func queueText(queue string, tickets []string) string {
	if len(tickets) == 0 {
		return ""
	}
	return fmt.Sprintf("%q: %s; ", queue, strings.Join(tickets, ", "))
}

func ticketText(who int, inside bool) string {
	state := serializer.StateWaiting
	if inside {
		state = serializer.StateInside
	}
	return fmt.Sprintf("%d %s", who, state)
}
