package enginetest

import (
	"fmt"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Visitors of all rules queue behind each other. Each time one has left, as
// many have entered as the rule of admission says.
func testTogether(s *space) {
	alone, reader := serializer.Rule{}, serializer.Rule{Shared: true}
	two, three, twoReaders := serializer.Rule{Limit: 2}, serializer.Rule{Limit: 3}, serializer.Rule{Shared: true, Limit: 2}
	for _, c := range []struct {
		name    string
		rules   []serializer.Rule
		entered []int // at first, and after each but the last has left
	}{
		{"one at a time", []serializer.Rule{alone, alone, alone}, []int{1, 2, 3}},
		{"two at a time", []serializer.Rule{two, two, two, two}, []int{2, 3, 4, 4}},
		{"limited behind alone", []serializer.Rule{alone, three}, []int{2, 2}}, // its own limit decides
		{"alone behind limited", []serializer.Rule{three, alone}, []int{1, 2}},
		{"limited behind reader", []serializer.Rule{reader, three}, []int{1, 2}},
		{"limited behind two limits", []serializer.Rule{three, two, three, two}, []int{3, 3, 4, 4}},
		{"readers", []serializer.Rule{reader, reader, reader}, []int{3, 3, 3}},
		{"reader behind limited", []serializer.Rule{three, reader}, []int{1, 2}},
		{"a writer behind readers", []serializer.Rule{reader, reader, alone, reader}, []int{2, 2, 3, 4}},
		{"readers behind a writer", []serializer.Rule{alone, reader, reader, alone}, []int{1, 3, 3, 4}},
		{"two readers", []serializer.Rule{twoReaders, twoReaders, twoReaders, twoReaders}, []int{2, 3, 4, 4}},
		{"limited reader behind reader", []serializer.Rule{reader, twoReaders}, []int{2, 2}},
		{"reader behind limited readers", []serializer.Rule{twoReaders, twoReaders, twoReaders, reader}, []int{2, 4, 4, 4}},
	} {
		var queue []*visitor
		for i, rule := range c.rules {
			a := s.ruled(rule)
			a.Queue = s.name(c.name)
			queue = append(queue, s.join(i, a))
		}
		for i, want := range c.entered {
			for _, v := range queue[:want] {
				v.enters()
			}
			s.busy()
			for n, v := range queue[want:] {
				if v.returned() {
					s.Fatalf("%s: visitor %d returned with error %v after %d have left; expected %d to have entered", c.name, want+n, v.err, i, want)
				}
			}
			queue[i].leave()
		}
		s.until(fmt.Sprintf("%s: the queue is empty", c.name), func() bool { return len(s.queue(s.on(0), s.name(c.name)).Tickets) == 0 })
	}
}

// A writer is alone; readers that came behind it do not pass it, and enter
// together as soon as it has left.
func testReadersBehindWriter(s *space) {
	reader, writer := s.ruled(serializer.Rule{Shared: true}), s.ruled(serializer.Rule{})
	first, second := s.enter(0, reader), s.enter(1, reader)
	third := s.join(1, writer)
	fourth, fifth := s.join(0, reader), s.join(1, reader)
	first.leave()
	third.stillWaits("a reader is inside")
	second.leave()
	third.enters()
	fourth.stillWaits("the writer is inside")
	third.leave()
	fourth.enters()
	fifth.enters()
	fourth.leave()
	fifth.leave()
}
