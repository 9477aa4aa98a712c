package serializer_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

func pause(t testing.TB, e *serializer.Engine, name string) {
	t.Helper()
	must(t, e.Pause(t.Context(), name, time.Time{}))
}

func resume(t testing.TB, e *serializer.Engine, name string) {
	t.Helper()
	must(t, e.Resume(t.Context(), name))
}

// A pause ends by itself, also that of a name with a *, and the list shows it meanwhile.
func TestPauseEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemory()
		until := time.Now().Add(time.Minute)
		for _, name := range []string{"user_*", "user_ann_"} { // the second one ends first
			must(t, e.Pause(t.Context(), name, until))
			until = until.Add(-time.Second)
		}
		states, err := e.Queues(t.Context())
		if err != nil || len(states) != 2 || states[0].Prefix != "user_*" || states[0].PausedUntil == nil || len(states[0].Tickets) != 0 {
			t.Errorf("paused queues without tickets are listed as %+v, error %v", states, err)
		}
		begun := time.Now()
		turn := enter(t, e, serializer.Arrival{Queue: "user_ann_"})
		if waited := time.Since(begun); waited != time.Minute {
			t.Errorf("entered after %s; expected a minute", waited)
		}
		if states, _ = e.Queues(t.Context()); len(states) != 1 || states[0].PausedUntil != nil {
			t.Errorf("after the pause the list is %+v", states)
		}
		turn.Leave()
	})
}

// A pause that would be over at once is refused: somebody mistook the time. So is one of no
// queue. Bug: a pause of a name with more than 80 bytes before its * also paused other queues
// whose long names begin with the same 80.
func TestWrongPauses(t *testing.T) {
	e := newMemory()
	defer e.Close()
	for name, until := range map[string]time.Time{"a_": time.Now().Add(-time.Second), "": {}, strings.Repeat("a", 81) + "*": {}} {
		if err := e.Pause(t.Context(), name, until); err == nil {
			t.Errorf("pausing %q until %s is no error", name, until)
		}
	}
	pause(t, e, strings.Repeat("b", 80)+"*")
	resume(t, e, strings.Repeat("b", 80)+"*")
	if err := e.Pause(t.Context(), "a_", serializer.Forever.Add(time.Hour)); err != nil {
		t.Errorf("a pause beyond all times: %v", err)
	}
	if queues, _ := e.Queues(t.Context()); len(queues) != 1 || !queues[0].PausedUntil.Equal(serializer.Forever) {
		t.Errorf("it is listed as %+v", queues)
	}
}

// A name that ends in * pauses each queue whose name begins so, also one that has no ticket
// yet, and no other. A queue that is also paused by its own name admits again when both
// pauses have ended. The end of a name with a * ends both.
func TestPauseOfNamesThatBeginAlike(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		in := func(queue string) serializer.Arrival {
			a := arrival()
			a.Queue = queue
			return a
		}
		holder := enter(t, e, in("user_ann_"))
		pause(t, e, "user_*")
		pause(t, e, "user_ann_")
		ann, bob := join(t, e, in("user_ann_")), join(t, e, in("user_bob_"))
		enter(t, e, in("users_")).Leave()
		holder.Leave()
		resume(t, e, "user_ann_")
		ann.waits(t, e)
		bob.waits(t, e)
		pause(t, e, "user_ann_")
		resume(t, e, "user_*")
		ann.enters(t).Leave()
		bob.enters(t).Leave()
		pause(t, e, "*")
		ann = join(t, e, in("user_ann_"))
		resume(t, e, "*")
		ann.enters(t).Leave()
	})
}
