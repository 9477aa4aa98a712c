package serializer_test

import (
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Bug: the name of a start stood for no queue if it was cut, or ended in digits that were
// escaped there alone.
func TestQueueNames(t *testing.T) {
	long := strings.Repeat("tenant-", 12)
	for _, c := range []struct{ start, rest string }{
		{"", "a"}, {"a_", ""}, {"a/", "b"}, {"p00001", ""}, {"p00001", "b_"}, {"p0000", "1"}, {"0000", "1b"},
		{long, "b_"}, {long, strings.Repeat("b", 100)}, {long + long, "b"}, {long + "/" + long, "b"},
		{long[:77] + "é", long}, {long[:76] + "é", long}, {long[:78], "é" + long}, {long[:79], "é" + long}, {long[:80], "é" + long},
	} {
		if queue := serializer.QueueName(c.start + c.rest); !serializer.Matches(serializer.QueueNames(c.start), queue) {
			t.Errorf("the name of all queues that begin with %q does not match %q", c.start, queue)
		}
	}
	for start, queue := range map[string]string{"a_": "a", "p00001b": "p00001", long + "c": long + "b_", "x" + long: long + long,
		// Bug: the name of 79 bytes stood for those that an escape was cut off at the 78th.
		long[:79]: long[:78] + strings.Repeat("é", 50), long[:80]: long[:79] + strings.Repeat("é", 50)} {
		if queue = serializer.QueueName(queue); serializer.Matches(serializer.QueueNames(start), queue) {
			t.Errorf("the name of all queues that begin with %q matches %q", start, queue)
		}
	}
	// Bug: the error had all of a name, however long.
	if err := serializer.CheckQueueName(strings.Repeat("x", 10_000)); err == nil || len(err.Error()) > 400 {
		t.Errorf("a name of 10,000 bytes: %.500v", err)
	}
}

// Any text makes a safe name, and different texts make different names. Bug: other processes took the tickets
// of a queue for owner files, and passed them, if its name began like the store's own files.
func FuzzQueueName(f *testing.F) {
	f.Add("a_", "a")
	f.Add("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd")
	f.Add(strings.Repeat("x", 200), strings.Repeat("x", 201))
	f.Add(strings.Repeat("/", 60), strings.Repeat("%2F", 60))
	f.Add("a00001", "a0000%31")
	f.Add(".orderly-guard", "%2Eorderly-guard")
	f.Add(".orderly-owner-x", ".orderly")
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
