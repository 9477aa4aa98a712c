package serializer

// entry is one ticket in a line.
type entry struct {
	Ticket
	name string // of its lock file; empty where there are none
	rule Rule

	prev, next *entry
	line       *line
	admitted   bool // by the rule; a ticket of this process is granted on top
	out        bool // no longer in the line

	known   bool   // who owns it, and so by which rule, where another process does
	unowned bool   // nobody does: it is another program's file
	owner   string // of it, for people

	announced bool   // the log tells that it is waited for
	seen      uint64 // the last listing of the directory that showed its file, or came before it

	barred *barred // where its file cannot be opened

	*waiter // nil for a ticket of another process
}

// line is one queue: its tickets in order, and how far down they may enter.
//
// The tickets that may be inside are always the first ones of the line, for
// whether one may enter depends only on those before it. So the line keeps the
// border, next, and two counts of what lies before it, and a hand-over costs
// the same whether ten or ten thousand wait.
//
// A line is not safe for concurrent use.
type line struct {
	prefix     string
	head, tail *entry
	next       *entry // the first that is not admitted
	length     int    // of the whole line
	admitted   int    // before the border
	shared     int    // before the border, readers
	unsure     int    // before the border, tickets whose rule is not known yet
	foreign    int    // tickets of other processes
	unknown    int    // of these, the ones whose owner is not known
	owned      int    // tickets of this process
	inside     int    // tickets of this process before the border
	special    int    // tickets of this process with a rule other than to be alone
	blocked    bool   // counted as blocked by others
}

// waiting is how many stand behind the border.
func (l *line) waiting() int { return l.length - l.admitted }

// insert puts e into its place. Tickets nearly always come in order, so the
// place is sought from the end.
func (l *line) insert(e *entry) {
	after := l.tail
	if l.head != nil && e.before(l.head) {
		after = nil
	}
	for after != nil && e.before(after) {
		after = after.prev
	}
	l.link(e, after)
	e.line = l
	l.length++
	l.count(e, 1)
	if e.next != nil && e.next.admitted {
		if l.inside == 0 {
			// The directory was listed, in no order: those behind e only
			// seemed to be the first.
			l.withdraw()
			return
		}
		// A stranger's file, older than those inside. Nobody is sent out for
		// it, but it counts.
		l.admit(e)
		return
	}
	if e.next == l.next {
		l.next = e
	}
}

func (l *line) link(e, after *entry) {
	e.prev = after
	if after == nil {
		e.next, l.head = l.head, e
	} else {
		e.next, after.next = after.next, e
	}
	if e.next == nil {
		l.tail = e
	} else {
		e.next.prev = e
	}
}

// remove takes e out.
func (l *line) remove(e *entry) {
	if l.next == e {
		l.next = e.next
	}
	if e.admitted {
		l.admitted--
		l.shared -= e.readers()
		l.unsure -= e.unclear()
		l.inside -= e.mine()
	}
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	l.length--
	l.count(e, -1)
}

// advance moves the border past all that may now be inside, and calls grant for
// those of this process. It reports whether there were any.
//
// A ticket that wants to be alone needs to know of those before it that there
// are some. For all others it matters by which rule they are inside, so a ticket
// of this process that is not strict waits until that is known.
func (l *line) advance(grant func(*entry)) (granted bool) {
	for l.next != nil && l.next.rule.Admits(l.admitted, l.shared) {
		e := l.next
		if e.waiter != nil && !e.rule.strict() && l.unsure > 0 {
			break
		}
		l.next = e.next
		l.admit(e)
		if e.waiter != nil {
			grant(e)
			granted = true
		}
	}
	return granted
}

// withdraw moves the border back to the start, where none of this process is
// before it.
func (l *line) withdraw() {
	for e := l.head; e != l.next; e = e.next {
		e.admitted = false
	}
	l.next, l.admitted, l.shared, l.unsure = l.head, 0, 0, 0
}

func (l *line) admit(e *entry) {
	e.admitted = true
	l.admitted++
	l.shared += e.readers()
	l.unsure += e.unclear()
	l.inside += e.mine()
}

// identify notes by which rule a ticket of another process is in line.
func (l *line) identify(e *entry, r Rule) {
	l.unknown -= e.unnamed()
	l.correct(e, func() { e.known, e.rule = true, r })
}

// disown notes that no process of ours owns a ticket. It stays one that wants to
// be alone.
func (l *line) disown(e *entry) {
	l.correct(e, func() { e.unowned = true })
}

// correct changes what is known of a ticket.
func (l *line) correct(e *entry, change func()) {
	if e.admitted {
		l.shared -= e.readers()
		l.unsure -= e.unclear()
	}
	change()
	if e.admitted {
		l.shared += e.readers()
		l.unsure += e.unclear()
	}
}

func (l *line) count(e *entry, by int) {
	if e.waiter == nil {
		l.foreign += by
		l.unknown += by * e.unnamed()
		return
	}
	l.owned += by
	if !e.rule.strict() {
		l.special += by
	}
}

// blockedByOthers reports whether somebody here waits while a ticket of
// another process is in line.
func (l *line) blockedByOthers() bool { return l.foreign > 0 && l.owned > l.inside }

func (e *entry) readers() int {
	if e.rule.Shared {
		return 1
	}
	return 0
}

// unclear is 1 for a ticket of another process as long as it is not known by
// which rule it is in line.
func (e *entry) unclear() int {
	if e.unowned {
		return 0
	}
	return e.unnamed()
}

// unnamed is 1 for a ticket of another process as long as its owner is not
// known, if there is one.
func (e *entry) unnamed() int {
	if e.waiter == nil && !e.known {
		return 1
	}
	return 0
}

func (e *entry) mine() int {
	if e.waiter != nil {
		return 1
	}
	return 0
}

func (e *entry) before(o *entry) bool {
	if e.Stamp != o.Stamp {
		return e.Stamp < o.Stamp
	}
	return e.name < o.name
}
