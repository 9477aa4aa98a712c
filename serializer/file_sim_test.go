package serializer

import (
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// simDir is a lock directory that exists in memory only, shared by simulated
// processes. Before each call, a process can be stopped or killed.
type simDir struct {
	noLinks bool // each ticket is a file of its own

	mu     sync.Mutex
	files  map[string]*simFile
	ids    uint64
	stamp  uint64 // in the guard file
	limits reservation
	procs  []*simProc
	guard  chan struct{} // has room for who holds the guard
	holder *simProc
	ended  chan struct{} // closed when the killed may fade away
}

// simFile is a file; its name may be one of several.
type simFile struct {
	id      fileID
	locked  bool // by its owner
	written bool // it says who that is
	about   Owner
	ticket  bool            // one that is a file of its own
	ledger  map[uint64]bool // of an owner file: the tickets that are out
}

// simProc is a process's view of the directory.
type simProc struct {
	*simDir
	number int
	calls  int
	halt   func(call int) haltMode // what happens before a call
	mode   haltMode
	resume chan struct{}

	events []simEvent
	listed bool
	notify chan struct{}
	owners map[ownerKind]string
	own    map[fileID]*simFile
	wrong  mutation
}

type simEvent struct {
	kind change
	name string
}

// haltMode is the state of a simulated process.
type haltMode int

const (
	running haltMode = iota
	stopped
	killed
)

// mutation makes a simulated process's view wrong in one way.
type mutation int

const (
	right mutation = iota
	withoutGuard
	scanErrorIgnored
	probeTrusted
)

func newSimDir() *simDir {
	return &simDir{files: make(map[string]*simFile), guard: make(chan struct{}, 1), ended: make(chan struct{})}
}

func (s *simDir) newProc() *simProc {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &simProc{simDir: s, number: len(s.procs), resume: make(chan struct{}), notify: make(chan struct{}, 1),
		owners: make(map[ownerKind]string), own: make(map[fileID]*simFile)}
	s.procs = append(s.procs, p)
	return p
}

// call is the start of each call. It reports false to a process that is dead:
// then the call must do nothing.
func (p *simProc) call() bool {
	runtime.Gosched()
	p.mu.Lock()
	p.calls++
	if p.mode == running && p.halt != nil {
		p.mode = p.halt(p.calls)
		if p.mode == killed {
			p.die()
		}
	}
	mode, resume := p.mode, p.resume
	p.mu.Unlock()
	switch mode {
	case stopped:
		<-resume
	case killed:
		<-p.ended
		return false
	}
	return true
}

func (p *simProc) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode == killed
}

// wake ends a stop.
func (p *simProc) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halt = nil
	if p.mode == stopped {
		p.mode = running
		close(p.resume)
		p.resume = make(chan struct{})
	}
}

// haltWhen stops the process before any call while something is so.
func (p *simProc) haltWhen(is func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halt = func(int) haltMode { return stoppedIf(is()) }
}

// die gives up what the kernel takes back. Others hear that owner files are
// closed a moment before their locks are free.
func (p *simProc) die() {
	p.mode = killed
	if p.holder == p {
		p.holder = nil
		<-p.guard
	}
	for name, f := range p.files {
		if p.own[f.id] != nil && strings.HasPrefix(name, ownerFiles) {
			p.tell(closed, name)
		}
	}
	time.AfterFunc(50*time.Microsecond, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.own {
			f.locked = false
		}
	})
}

func (s *simDir) tell(kind change, name string) {
	for _, p := range s.procs {
		p.events = append(p.events, simEvent{kind, name})
		select {
		case p.notify <- struct{}{}:
		default:
		}
	}
}

func (p *simProc) lock() error {
	if !p.call() || p.wrong == withoutGuard {
		return nil
	}
	p.guard <- struct{}{}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == killed { // while it waited
		<-p.guard
		return nil
	}
	p.holder = p
	return nil
}

func (p *simProc) unlock() {
	if !p.call() || p.wrong == withoutGuard {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holder == p {
		p.holder = nil
		<-p.guard
	}
}

func (p *simProc) check() error  { p.call(); return nil }
func (p *simProc) here() bool    { return true }
func (p *simProc) place() fileID { return fileID{} }

func (p *simProc) last() (uint64, error) {
	if !p.call() {
		return 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stamp, nil
}

func (p *simProc) setLast(n uint64) error {
	if !p.call() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stamp = n
	return nil
}

func (p *simProc) reservation() (reservation, error) {
	if !p.call() {
		return reservation{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limits, nil
}

func (p *simProc) setBound(bound uint64) error {
	if !p.call() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits.bound = bound
	return nil
}

func (p *simProc) confirm(bound uint64) error {
	if !p.call() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits.confirmed = bound
	return nil
}

// create makes an owner file if there is none yet, in three calls, writes the
// number into its ledger, and makes the ticket.
func (p *simProc) create(name string, stamp uint64, k ownerKind) error {
	owner := p.ownerName(k)
	p.mu.Lock()
	made := p.files[owner] != nil
	p.mu.Unlock()
	if !made {
		p.makeFile(owner, k)
	}
	if !p.call() {
		return nil
	}
	p.mu.Lock()
	p.owners[k] = owner
	if f := p.files[owner]; f != nil {
		f.ledger[stamp] = true
	}
	p.mu.Unlock()
	return p.restore(name, k)
}

// restore links a ticket's name to the owner file. Without links, the ticket is
// made in three calls.
func (p *simProc) restore(name string, k ownerKind) error {
	if p.noLinks {
		p.makeFile(name, k)
		return nil
	}
	if !p.call() {
		return nil
	}
	owner := p.ownerName(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files[name] != nil {
		return fs.ErrExist
	}
	if p.files[owner] == nil {
		return fs.ErrNotExist
	}
	p.put(name, p.files[owner])
	return nil
}

func (p *simProc) leave(name string, stamp uint64) error {
	if !p.call() {
		return nil
	}
	p.mu.Lock()
	for _, owner := range p.owners {
		if f := p.files[owner]; f != nil {
			delete(f.ledger, stamp)
		}
	}
	p.mu.Unlock()
	return p.remove(name)
}

func (p *simProc) restoreOwner(string) error { p.call(); return nil }
func (p *simProc) refresh()                  {}
func (p *simProc) announce()                 {}
func (p *simProc) widen()                    {}

func (p *simProc) ownerName(k ownerKind) string {
	return fmt.Sprintf("%s%d-%t-%d", ownerFiles, p.number, k.Shared, k.Limit)
}

func (s *simDir) put(name string, f *simFile) {
	s.files[name] = f
	s.tell(appeared, name)
}

// makeFile makes a file, locks it and writes to it.
func (p *simProc) makeFile(name string, k ownerKind) {
	f := &simFile{about: Owner{PID: p.number, Rule: k.Rule, Group: k.group}, ticket: !strings.HasPrefix(name, ownFiles), ledger: make(map[uint64]bool)}
	for _, step := range []func(){
		func() {
			p.ids++
			f.id = fileID{1, p.ids}
			p.own[f.id] = f
			p.put(name, f)
		},
		func() { f.locked = true },
		func() { f.written = true },
	} {
		if !p.call() {
			return
		}
		p.mu.Lock()
		step()
		p.mu.Unlock()
	}
}

func (p *simProc) remove(name string) error {
	if !p.call() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files[name] != nil {
		delete(p.files, name)
		p.tell(vanished, name)
	}
	return nil
}

func (p *simProc) changes(fn func(change, []byte)) error {
	if !p.call() {
		return nil
	}
	p.mu.Lock()
	events := p.events
	p.events = nil
	complete := !p.listed
	if complete && p.wrong == scanErrorIgnored {
		complete, p.listed = false, true
	}
	if complete {
		p.listed = true
		events = []simEvent{{kind: listing}}
		for name := range p.files {
			events = append(events, simEvent{appeared, name})
		}
		slices.SortFunc(events, func(a, b simEvent) int { return strings.Compare(a.name, b.name) })
	}
	p.mu.Unlock()
	for _, e := range events {
		fn(e.kind, []byte(e.name))
	}
	return nil
}

func (p *simProc) wait(d time.Duration) {
	select {
	case <-p.notify:
	case <-time.After(d):
	}
}

func (p *simProc) interrupt() {
	select {
	case p.notify <- struct{}{}:
	default:
	}
}

func (p *simProc) notifies() bool    { return true }
func (p *simProc) checksUsers() bool { return false }

func (p *simProc) age(string) time.Duration { p.call(); return 0 }

func (p *simProc) find(name string) (*simFile, error) {
	if !p.call() {
		return nil, fs.ErrNotExist
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.files[name]; f != nil {
		return f, nil
	}
	return nil, fs.ErrNotExist
}

func (p *simProc) identify(name string) (fileID, error) {
	f, err := p.find(name)
	if err != nil {
		return fileID{}, err
	}
	return f.id, nil
}

func (p *simProc) owns(id fileID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own[id] != nil
}

func (p *simProc) probe(name string) (ownerProbe, error) {
	f, err := p.find(name)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !f.written && p.wrong != probeTrusted {
		return nil, errUnowned
	}
	return &simProbe{p, f}, nil
}

// simProbe is another process's file.
type simProbe struct {
	proc *simProc
	file *simFile
}

func (b *simProbe) id() fileID   { return b.file.id }
func (b *simProbe) owner() Owner { return b.file.about }
func (b *simProbe) close()       {}

// Reading a ledger is no call: a stop in the middle of it has the same effect as
// one before it.
func (b *simProbe) standing(stamp uint64) standing {
	b.proc.mu.Lock()
	defer b.proc.mu.Unlock()
	if b.file.ledger[stamp] {
		return isOut
	}
	return isAbsent
}

func (b *simProbe) keepsLedger() bool { return true }

func (b *simProbe) outstanding() (stamps []uint64, ok bool) {
	b.proc.mu.Lock()
	defer b.proc.mu.Unlock()
	return slices.Collect(maps.Keys(b.file.ledger)), true
}

func (b *simProbe) dead() (bool, error) {
	if !b.proc.call() {
		return false, nil
	}
	b.proc.mu.Lock()
	defer b.proc.mu.Unlock()
	return !b.file.locked, nil
}

func (p *simProc) mark(name string) error {
	if !p.call() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids++
	p.put(name, &simFile{id: fileID{1, p.ids}})
	return nil
}

func (p *simProc) disown() {
	if !p.call() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.owners {
		f := p.files[name]
		delete(p.files, name)
		p.tell(vanished, name)
		p.tell(closed, name)
		if f != nil {
			f.locked = false
		}
	}
	clear(p.owners)
}

func (p *simProc) close() { p.disown() }
