package serializer

import (
	"strings"
	"testing"
)

// A queue whose name began like the engine's own files (by a placeholder: the
// configuration itself may not say so) had tickets that other processes took
// for owner files, and passed.
func TestQueueNameIsNotOwnFile(t *testing.T) {
	for _, text := range []string{".orderly-", guardFile, ownerFiles + "x", evictMarker, trialFiles} {
		if name := QueueName(text); strings.HasPrefix(name, ownFiles) || name != "%2E"+text[1:] {
			t.Errorf("QueueName(%q) = %q", text, name)
		}
	}
	if name := QueueName(".orderly"); name != ".orderly" {
		t.Errorf("QueueName(.orderly) = %q", name)
	}
}
