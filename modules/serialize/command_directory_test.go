package serialize

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Bug: after a pause, the state of another user's queue of the same name was read. So the
// command said that the pause had ended, and exited with 5.
func TestStateAfterAPause(t *testing.T) {
	until := time.Now().Add(time.Minute)
	free := serializer.QueueState{Path: "/q", Prefix: "a_"}
	paused := serializer.QueueState{Path: "/q", Prefix: "a_", PausedUntil: &until}
	for _, c := range []struct {
		name, action string
		queues       []serializer.QueueState
		paused       bool
	}{
		{"paused, the other's first", actionPause, []serializer.QueueState{free, paused}, true},
		{"paused, the other's last", actionPause, []serializer.QueueState{paused, free}, true},
		{"paused, and ended since", actionPause, []serializer.QueueState{free}, false},
		{"resumed, the other's first", actionResume, []serializer.QueueState{paused, free}, false},
		{"resumed, the other's last", actionResume, []serializer.QueueState{free, paused}, false},
		{"resumed, but not its group", actionResume, []serializer.QueueState{paused}, true},
		{"not there", actionResume, nil, false},
	} {
		got := stateAfter(append(c.queues, serializer.QueueState{Path: "/q", Prefix: "b_"}), "/q", "a_", c.action)
		if got.Prefix != "a_" || got.Path != "/q" || (got.PausedUntil != nil) != c.paused {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
