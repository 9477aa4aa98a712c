package serializer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// The engines must not differ: whatever comes in whatever order, the lock files
// give the history that the memory does.
func TestFileIsLikeMemory(t *testing.T) {
	rules := []Rule{{}, {}, {Limit: 3}, {Shared: true}, {Shared: true, Limit: 2}}
	for _, test := range []struct {
		name  string
		files int // engines on the same directory
		rules []Rule
		steps int
	}{
		{"one engine", 1, rules, 300},
		{"two engines", 2, rules, 150},
	} {
		t.Run(test.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			dir := t.TempDir()
			var files []Engine
			for range test.files {
				files = append(files, openAt(t, dir, 0))
			}
			memory := newPlay("memory", NewMemory(MemoryOptions{}))
			file := newPlay("file", files...)
			r := rand.New(rand.NewPCG(seed, 0))
			for i := range test.steps {
				step := memory.randomStep(r, test.rules)
				memory.do(t, step)
				want := memory.settled(t, "")
				file.do(t, step)
				got := file.settled(t, want)
				if got != want {
					t.Fatalf("step %d, %+v:\nmemory %s\nfile   %s", i, step, want, got)
				}
			}
			memory.end(t)
			file.end(t)
			if got, want := file.endings(), memory.endings(); !slices.Equal(got, want) {
				t.Errorf("memory %q\nfile   %q", want, got)
			}
		})
	}
}

// step is one thing that happens.
type step struct {
	what  string // arrive, leave, hang up, evict
	who   int    // the number of the arrival
	queue string
	rule  Rule
	max   int
	short bool // it gives up at once if it has to wait
}

// play is a history with an engine, or several that should be as one.
type play struct {
	name     string
	engines  []Engine
	arrivals []*actor
}

// actor is one arrival.
type actor struct {
	step
	hangUp  context.CancelCauseFunc
	done    chan result
	told    chan error
	turn    Turn
	going   bool   // it was hung up or evicted while it waited
	evicted bool   // while it was inside
	end     string // how it ended, once it has

	// As the engine last listed it.
	listed, inside bool
}

func newPlay(name string, engines ...Engine) *play { return &play{name: name, engines: engines} }

// randomStep chooses something that can happen now.
func (p *play) randomStep(r *rand.Rand, rules []Rule) step {
	var inside, waiting []int
	for i, a := range p.arrivals {
		switch {
		case a.end != "":
		case a.turn != nil:
			inside = append(inside, i)
		default:
			waiting = append(waiting, i)
		}
	}
	switch n := r.IntN(10); {
	case n < 3 && len(inside) > 0:
		return step{what: "leave", who: inside[r.IntN(len(inside))]}
	case n == 3 && len(waiting) > 0:
		return step{what: "hang up", who: waiting[r.IntN(len(waiting))]}
	case n == 4 && len(inside)+len(waiting) > 0:
		all := append(inside, waiting...)
		return step{what: "evict", who: all[r.IntN(len(all))]}
	}
	return step{
		what:  "arrive",
		who:   len(p.arrivals),
		queue: []string{"a_", "a", "a_b_"}[r.IntN(3)],
		rule:  rules[r.IntN(len(rules))],
		max:   []int{0, 0, 3}[r.IntN(3)],
		short: r.IntN(12) == 0,
	}
}

// do lets a step happen.
func (p *play) do(t *testing.T, s step) {
	t.Helper()
	if s.what == "arrive" {
		p.arrive(s)
		return
	}
	a := p.arrivals[s.who]
	switch s.what {
	case "leave":
		a.turn.Leave()
		a.end = "left"
	case "hang up":
		a.going = true
		a.hangUp(errHungUp)
	case "evict":
		token := p.token(t, s.who)
		if err := p.engines[s.who%len(p.engines)].Evict(t.Context(), a.queue, token); err != nil {
			t.Fatalf("%s: evicting: %v", p.name, err)
		}
		if a.turn == nil {
			a.going = true
			break
		}
		if a.evicted {
			break // it is told only once
		}
		a.evicted = true
		select {
		case <-a.told:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: arrival %d was not told", p.name, s.who)
		}
	}
}

var errHungUp = errors.New("hung up")

func (p *play) arrive(s step) {
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &actor{step: s, hangUp: cancel, done: make(chan result, 1), told: make(chan error, 10)}
	p.arrivals = append(p.arrivals, a)
	arrival := Arrival{
		Queue:      s.queue,
		Client:     client(s.who),
		Rule:       s.rule,
		MaxWaiting: s.max,
		Revoke:     func(err error) { a.told <- err },
	}
	if s.short {
		arrival.Timeout = 150 * time.Millisecond
	}
	go func() {
		turn, err := p.engines[s.who%len(p.engines)].Enter(ctx, arrival)
		a.done <- result{turn, err}
	}()
}

// client is the address by which an arrival is found again.
func client(who int) netip.AddrPort {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(who+1))
}

func (p *play) token(t *testing.T, who int) (token uint64) {
	t.Helper()
	for _, ticket := range queueOf(t, p.engines[0], p.arrivals[who].queue).Tickets {
		if ticket.Client == client(who).String() {
			token, _ = parseDigits(ticket.Token)
		}
	}
	return token
}

// settled waits until everybody is where they should be: if want is known,
// until that is so; else until each arrival has a ticket or its end, and those
// who are short of time are gone.
func (p *play) settled(t *testing.T, want string) (state string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		p.gather()
		if state = p.state(t); (want == "" || state == want) && p.quiet() {
			return state
		}
	}
	return state
}

// gather takes in what has come of the arrivals.
func (p *play) gather() {
	for _, a := range p.arrivals {
		select {
		case r := <-a.done:
			if a.turn = r.turn; r.err != nil {
				var refused *Refused
				errors.As(r.err, &refused)
				a.end = fmt.Sprintf("%s at %d", refused.Reason, refused.Position)
			}
		default:
		}
	}
}

// state tells who is where, and how the others have ended.
func (p *play) state(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	queues, err := p.engines[0].Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range p.arrivals {
		a.listed, a.inside = false, false
	}
	for _, q := range queues {
		if len(q.Tickets) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%q:", q.Prefix)
		for _, ticket := range q.Tickets {
			who := int(netip.MustParseAddrPort(ticket.Client).Port()) - 1
			a := p.arrivals[who]
			a.listed, a.inside = true, ticket.State == StateInside
			fmt.Fprintf(&b, " %d %s,", who, ticket.State)
		}
		b.WriteString("; ")
	}
	for i, a := range p.arrivals {
		if a.end != "" && a.end != "left" {
			fmt.Fprintf(&b, "%d %s, ", i, a.end)
		}
	}
	return b.String()
}

// quiet reports whether nothing more is about to happen: all are inside who may
// be, and all have gone who must.
func (p *play) quiet() bool {
	return !slices.ContainsFunc(p.arrivals, func(a *actor) bool {
		switch {
		case a.end != "":
			return a.listed
		case !a.listed, a.inside != (a.turn != nil):
			return true
		}
		return !a.inside && (a.short || a.going)
	})
}

// end lets everybody go.
func (p *play) end(t *testing.T) {
	t.Helper()
	for i := 0; i < len(p.arrivals); i++ {
		for i, a := range p.arrivals {
			if a.end == "" && a.turn != nil {
				p.do(t, step{what: "leave", who: i})
			}
		}
		p.settled(t, "")
	}
}

// endings tells how all arrivals have ended.
func (p *play) endings() (ends []string) {
	for _, a := range p.arrivals {
		ends = append(ends, a.end)
	}
	return ends
}
