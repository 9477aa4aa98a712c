package serializer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A pause ends by itself, also that of a group whose queue came later, and the list
// shows it meanwhile.
func TestPauseEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(MemoryOptions{})
		until := time.Now().Add(time.Minute)
		if err := m.Pause(t.Context(), "{user}_", until); err != nil {
			t.Fatal(err)
		}
		states, _ := m.Queues(t.Context())
		if len(states) != 1 || states[0].Prefix != "{user}_" || states[0].PausedUntil == nil || !states[0].PausedUntil.Equal(until) {
			t.Errorf("a paused group without tickets is listed as %+v", states)
		}
		start := time.Now()
		turn, err := m.Enter(t.Context(), Arrival{Queue: "ann_", Group: "{user}_"})
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("entered after %s; expected a minute", waited)
		}
		if states, _ = m.Queues(t.Context()); len(states) != 1 || states[0].PausedUntil != nil {
			t.Errorf("after the pause the list is %+v", states)
		}
		turn.Leave()
	})
}

// A pause that would be over at once is refused: somebody mistook the time.
func TestPauseInThePast(t *testing.T) {
	m := NewMemory(MemoryOptions{})
	if err := m.Pause(t.Context(), "a", time.Now().Add(-time.Second)); err == nil {
		t.Error("a pause that ended before it began is no error")
	}
}

func TestMemoryDropsOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(MemoryOptions{})
		a := Arrival{Queue: "a", MaxWaiting: 2, DropOldest: true}
		holder, err := m.Enter(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, 10)
		for i := range errs {
			go func() {
				var turn Turn
				if turn, errs[i] = m.Enter(t.Context(), a); errs[i] == nil {
					turn.Leave()
				}
			}()
			synctest.Wait()
		}
		holder.Leave()
		synctest.Wait()
		for i, err := range errs {
			refused, ok := errors.AsType[*Refused](err)
			if latest := i >= 8; latest != (err == nil) || !latest && (!ok || refused.Reason != ReasonSuperseded) {
				t.Errorf("arrival %d: error %v; expected the last two to enter, the others to be superseded", i, err)
			}
		}
	})
}
