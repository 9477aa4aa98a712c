package serializer_test

import (
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Bug: other processes took the tickets of a queue for owner files, and passed them, if
// the queue's name began like the store's own files. Only a placeholder can lead to such
// a name.
func TestQueueNameIsNotOwnFile(t *testing.T) {
	for _, text := range []string{".orderly-", ".orderly-guard", ".orderly-owner-x", ".orderly-evict-"} {
		if name := serializer.QueueName(text); name != "%2E"+text[1:] {
			t.Errorf("QueueName(%q) = %q", text, name)
		}
	}
	if name := serializer.QueueName(".orderly"); name != ".orderly" {
		t.Errorf("QueueName(.orderly) = %q", name)
	}
}

// Any text makes a safe name, and different texts make different names.
func FuzzQueueName(f *testing.F) {
	f.Add("a_", "a")
	f.Add("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd")
	f.Add(strings.Repeat("x", 200), strings.Repeat("x", 201))
	f.Add(strings.Repeat("/", 60), strings.Repeat("%2F", 60))
	f.Add("a00001", "a0000%31")
	f.Add(".orderly-guard", "%2Eorderly-guard")
	f.Add("\x00\n\xff", "")
	f.Add("\x800000", "") // bug: an escape's own zero made it ambiguous
	f.Fuzz(func(t *testing.T, a, b string) {
		name := serializer.QueueName(a)
		if len(name) > 150 || serializer.AmbiguousQueueName(name) || strings.HasPrefix(name, serializer.ReservedPrefix) {
			t.Errorf("QueueName(%q) = %q", a, name)
		}
		for _, c := range []byte(name) {
			if c < ' ' || c > '~' || c == '/' || c == '\\' || c == '*' {
				t.Errorf("QueueName(%q) = %q", a, name)
			}
		}
		if a != b && name == serializer.QueueName(b) {
			t.Errorf("%q and %q are both queue %q", a, b, name)
		}
	})
}
