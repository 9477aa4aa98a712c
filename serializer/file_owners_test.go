package serializer

import (
	"context"
	"testing"
)

// Bug: remote readers that were inside counted as waiting until their rule was known. So
// a writer was refused as one too many, although nobody waited.
func TestRemoteReadersInsideDoNotFillTheQueue(t *testing.T) {
	dir := t.TempDir()
	here, there := openAt(t, dir, 0), openAt(t, dir, 0)
	reader := Arrival{Queue: "q", Rule: Rule{Shared: true}}
	writer := Arrival{Queue: "q", MaxWaiting: 1, Timeout: patience}
	enter(t, here, Arrival{Queue: "other"}).Leave() // this engine knows the directory now
	first, second := enter(t, there, reader), enter(t, there, reader)
	waiting := started(here, writer)
	first.Leave()
	second.Leave()
	get(t, waiting).Leave()

	first, second = enter(t, there, reader), enter(t, there, reader)
	waiting = started(here, writer)
	stillWaits(t, waiting, "beside readers")
	if _, err := here.Enter(context.Background(), writer); ReasonOf(err) != ReasonFull {
		t.Errorf("entering a full queue: %v", err)
	}
	first.Leave()
	second.Leave()
	get(t, waiting).Leave()
}
