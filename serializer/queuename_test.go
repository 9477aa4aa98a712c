package serializer

import (
	"strings"
	"testing"
)

// Bug: other processes took the tickets of a queue for owner files, and passed them, if
// the queue's name began like the engine's own files. Only a placeholder can lead to such
// a name.
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
