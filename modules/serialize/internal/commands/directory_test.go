package commands

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
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
		{"paused, the other's first", queueapi.Pause, []serializer.QueueState{free, paused}, true},
		{"paused, the other's last", queueapi.Pause, []serializer.QueueState{paused, free}, true},
		{"paused, and ended since", queueapi.Pause, []serializer.QueueState{free}, false},
		{"resumed, the other's first", queueapi.Resume, []serializer.QueueState{paused, free}, false},
		{"resumed, the other's last", queueapi.Resume, []serializer.QueueState{free, paused}, false},
		{"resumed, but not its group", queueapi.Resume, []serializer.QueueState{paused}, true},
		{"not there", queueapi.Resume, nil, false},
	} {
		got := stateAfter(append(c.queues, serializer.QueueState{Path: "/q", Prefix: "b_"}), "/q", "a_", c.action)
		if got.Prefix != "a_" || got.Path != "/q" || (got.PausedUntil != nil) != c.paused {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
