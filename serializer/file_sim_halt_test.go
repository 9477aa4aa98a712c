package serializer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// scene is what some simulated processes do in one directory: each has callers
// that come twice to the same queue.
type scene struct {
	procs   int
	callers int
	rule    Rule
	noLinks bool
	wrong   mutation
	halt    []func(call int) haltMode // of the first processes
}

// witness records what happened.
type witness struct {
	mu       sync.Mutex
	inside   map[*simProc]int
	last     uint64
	problems []string
	done     int
}

func (w *witness) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// enter notes an entry, unless its process has been killed.
func (w *witness) enter(p *simProc, token uint64, r Rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead() {
		return
	}
	others := 0
	for q, n := range w.inside {
		if !q.dead() {
			others += n
		}
	}
	if others >= max(r.Limit, 1) {
		w.problem("overlap: process %d enters, %d are inside", p.number, others)
	}
	if token <= w.last && r.Alone() {
		w.problem("inversion: %d after %d", token, w.last)
	}
	w.last = max(w.last, token)
	w.inside[p]++
}

func (w *witness) leave(p *simProc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside[p]--
	w.done++
}

// stopTime is how long a process is stopped.
const stopTime = 20 * time.Millisecond

// play runs a scene to its end. It returns how many calls each process made.
func (s scene) play() (calls []int, problems []string) {
	dir := newSimDir()
	dir.noLinks = s.noLinks
	w := &witness{inside: make(map[*simProc]int)}
	var engines []*File
	var survivors, victims sync.WaitGroup
	for range s.procs {
		dir.newProc().wrong = s.wrong
	}
	for i, p := range dir.procs {
		group := &survivors
		if i < len(s.halt) {
			p.halt = s.halt[i]
			group = &victims
		}
		e := dir.engine(p)
		engines = append(engines, e)
		for range s.callers {
			group.Go(func() {
				for range 2 {
					s.visit(w, p, e)
				}
			})
		}
	}
	s.settle(w, dir, &survivors, &victims)
	for _, e := range engines {
		_ = e.Close()
	}
	dir.mu.Lock()
	defer dir.mu.Unlock()
	for _, p := range dir.procs {
		calls = append(calls, p.calls)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return calls, w.problems
}

// engine works in the directory as a process.
func (s *simDir) engine(p *simProc) *File {
	return newFile("simulated", FileOptions{}, func(string, func() time.Time) (lockDir, error) { return p, nil })
}

// visit is one arrival.
func (s scene) visit(w *witness, p *simProc, e *File) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-p.ended:
			if p.dead() { // it hears no more of its turn
				cancel()
			}
		case <-ctx.Done():
		}
	}()
	turn, err := e.Enter(ctx, Arrival{Queue: "a_", Rule: s.rule})
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !p.dead() {
			w.problem("process %d: %v", p.number, err)
		}
		return
	}
	w.enter(p, turn.Token(), s.rule)
	runtime.Gosched()
	w.leave(p)
	turn.Leave()
}

// settle wakes the stopped processes, waits for the survivors, and ends the
// killed ones.
func (s scene) settle(w *witness, dir *simDir, survivors, victims *sync.WaitGroup) {
	time.AfterFunc(stopTime, func() {
		for _, p := range dir.procs {
			p.wake()
		}
	})
	w.await(survivors, "the survivors")
	for _, p := range dir.procs {
		p.wake()
	}
	close(dir.ended)
	w.await(victims, "the halted")
}

func (w *witness) await(group *sync.WaitGroup, who string) {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		w.mu.Lock()
		defer w.mu.Unlock()
		w.problem("%s are stuck", who)
	}
}

// at halts a process before one of its calls.
func at(call int, mode haltMode) func(int) haltMode {
	return func(n int) haltMode {
		if n == call {
			return mode
		}
		return running
	}
}

// Every process is stopped or killed before each of its calls. The others must continue,
// one at a time and in order.
func TestHaltBetweenAnyTwoCalls(t *testing.T) {
	for _, test := range []struct {
		name  string
		scene scene
		mode  haltMode
	}{
		{"killed", scene{procs: 3, callers: 2}, killed},
		{"stopped", scene{procs: 3, callers: 2}, stopped},
		{"killed, limited", scene{procs: 3, callers: 3, rule: Rule{Limit: 2}}, killed},
		{"stopped, limited", scene{procs: 3, callers: 3, rule: Rule{Limit: 2}}, stopped},
		{"stopped, without links", scene{procs: 3, callers: 2, noLinks: true}, stopped},
		{"stopped, limited, without links", scene{procs: 3, callers: 3, rule: Rule{Limit: 2}, noLinks: true}, stopped},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			points := 0
			for call := 1; ; call++ {
				test.scene.halt = []func(int) haltMode{at(call, test.mode)}
				calls, problems := test.scene.play()
				for _, p := range problems {
					t.Errorf("call %d: %s", call, p)
				}
				if calls[0] < call || t.Failed() {
					break
				}
				points++
			}
			t.Logf("%d stopping points", points)
		})
	}
}

// Two processes are killed, each before any of its calls.
func TestTwoKilledBetweenAnyTwoCalls(t *testing.T) {
	s := scene{procs: 3, callers: 1}
	calls, problems := s.play()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var group sync.WaitGroup
	for i := 1; i <= calls[0]; i++ {
		group.Go(func() {
			for j := 1; j <= calls[1] && !t.Failed(); j++ {
				s := s
				s.halt = []func(int) haltMode{at(i, killed), at(j, killed)}
				if _, problems := s.play(); len(problems) > 0 {
					t.Errorf("calls %d and %d: %v", i, j, problems)
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d pairs of stopping points", calls[0]*calls[1])
}

// Stopping detects what goes wrong without the guard.
func TestGuardLeftOut(t *testing.T) {
	s := scene{procs: 3, callers: 2, wrong: withoutGuard}
	for call := 1; call < 40; call++ {
		s.halt = []func(int) haltMode{at(call, stopped)}
		_, problems := s.play()
		if i := slices.IndexFunc(problems, isOverlap); i >= 0 {
			t.Logf("call %d: %s", call, problems[i])
			return
		}
	}
	t.Error("no overlap is found with the guard left out")
}

func isOverlap(problem string) bool { return strings.HasPrefix(problem, "overlap") }

// A process that takes an error in reading the directory for the end of the list
// enters beside the holder.
func TestScanErrorIgnored(t *testing.T) {
	for wrong, want := range map[mutation]error{right: ErrTimeout, scanErrorIgnored: nil} {
		dir := newSimDir()
		turn := enter(t, dir.engine(dir.newProc()), arrival("a_"))
		late := dir.newProc()
		late.wrong = wrong
		tooMany(t, dir.engine(late), arrival("a_"), want)
		turn.Leave()
	}
}

// A process probes a ticket before its owner could lock it, takes the owner for dead, and
// removes the ticket. So too many enter.
func TestProbeTrustedAtOnce(t *testing.T) {
	for wrong, want := range map[mutation]error{right: ErrTimeout, probeTrusted: nil} {
		dir := newSimDir()
		dir.noLinks = true
		hasty, slow := dir.newProc(), dir.newProc()
		hasty.wrong = wrong
		one, two := dir.engine(hasty), dir.engine(slow)
		a := arrival("a_")
		a.Rule.Limit = 2
		first := enter(t, one, a)

		slow.halt = func(int) haltMode { return stoppedIf(slow.hasTicket(func(f *simFile) bool { return !f.locked })) }
		entering := started(two, a)
		wait.Until(t, "the file is made, and not locked", func() bool {
			dir.mu.Lock()
			defer dir.mu.Unlock()
			return slow.mode == stopped
		})
		if err := one.dir.sync(false); err != nil {
			t.Fatal(err)
		}
		one.dir.tick()
		slow.wake()
		slow.haltWhen(func() bool { // it has let go of the guard, and hears nothing from then on
			return slow.holder != slow && slow.hasTicket(func(f *simFile) bool { return f.written })
		})
		second := get(t, entering)
		tooMany(t, one, a, want)
		slow.wake()
		first.Leave()
		second.Leave()
	}
}

func stoppedIf(is bool) haltMode {
	if is {
		return stopped
	}
	return running
}

// hasTicket reports whether a process has made a ticket of some kind. The caller
// holds mu.
func (p *simProc) hasTicket(kind func(*simFile) bool) bool {
	for _, f := range p.own {
		if f.ticket && kind(f) {
			return true
		}
	}
	return false
}

// tooMany is an arrival that must be refused, unless want is nil.
func tooMany(t *testing.T, e Engine, a Arrival, want error) {
	t.Helper()
	if want != nil {
		a.Timeout = 100 * time.Millisecond
	}
	turn, err := e.Enter(context.Background(), a)
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if err == nil {
		turn.Leave()
	}
}

// A caller that waits behind a stopped process still ends by its own timeout, wherever
// that process was stopped, even under the guard.
func TestTimeoutBehindStoppedProcess(t *testing.T) {
	for call := 1; call < 20; call++ {
		t.Run(fmt.Sprint(call), func(t *testing.T) {
			t.Parallel()
			dir := newSimDir()
			victim, other := dir.newProc(), dir.newProc()
			victim.halt = at(call, stopped)
			first, second := dir.engine(victim), dir.engine(other)
			leave := make(chan struct{})
			var group sync.WaitGroup
			group.Go(func() {
				turn, err := first.Enter(context.Background(), arrival("a_"))
				if err == nil {
					<-leave
					turn.Leave()
				}
			})
			wait.Until(t, "the first has come", func() bool {
				dir.mu.Lock()
				defer dir.mu.Unlock()
				return victim.mode == stopped || len(dir.files) > 1
			})
			start := time.Now()
			turn, err := second.Enter(context.Background(), Arrival{Queue: "a_", Timeout: 50 * time.Millisecond})
			if took := time.Since(start); took > patience/2 {
				t.Errorf("took %v", took)
			}
			switch {
			case err == nil: // the stop came before the ticket
				turn.Leave()
			case !errors.Is(err, ErrTimeout):
				t.Error(err)
			}
			close(leave)
			victim.wake()
			close(dir.ended)
			group.Wait()
			_ = first.Close()
			_ = second.Close()
		})
	}
}
