package uniqueid

import (
	"errors"
	"testing"
)

// What a receiver must take and must refuse, by the standard.
func TestParseTraceContext(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	const good = trace + "-" + parent
	for _, tt := range []struct {
		name, text string
		want       string // as version 00, or nothing if it is refused
	}{
		{"version 00", "00-" + good + "-01", "00-" + good + "-01"},
		{"no flags", "00-" + good + "-00", "00-" + good + "-00"},
		{"a future version with more", "cc-" + good + "-01-what-the-future-brings", "00-" + good + "-01"},
		{"a future version, ended by a hyphen", "fe-" + good + "-01-", "00-" + good + "-01"},
		{"a future version with more, not set apart", "cc-" + good + "-01.what", ""},
		{"a future version, truncated", "cc-" + good + "-0", ""},
		{"version ff", "ff-" + good + "-01", ""},
		{"version 00 with more", "00-" + good + "-01-more", ""},
		{"version in upper case", "CC-" + good + "-01", ""},
		{"version of one digit", "0-" + good + "-01", ""},
		{"empty", "", ""},
		{"trace ID of zeros", "00-00000000000000000000000000000000-" + parent + "-01", ""},
		{"parent ID of zeros", "00-" + trace + "-0000000000000000-01", ""},
		{"trace ID in upper case", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + parent + "-01", ""},
		{"flags in upper case", "00-" + good + "-0A", ""},
		{"other hyphens", "00_" + trace + "_" + parent + "_01", ""},
		{"a space behind", "00-" + good + "-01 ", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseTraceContext(tt.text)
			if tt.want == "" {
				if _, ok := errors.AsType[*ParseError](err); !ok {
					t.Errorf("%q is read as %v, %v", tt.text, c, err)
				}
				return
			}
			if err != nil || c.String() != tt.want {
				t.Errorf("%q is read as %v, %v; expected %s", tt.text, c, err, tt.want)
			}
		})
	}
}

func TestNewTraceContext(t *testing.T) {
	id := NewUUIDv7()
	seen := make(map[[8]byte]bool)
	for range 1000 {
		c := NewTraceContext(id)
		parent := c.ParentID()
		if c.TraceID() != id.TraceID() || c.Flags() != TraceSampled|TraceRandom || parent == [8]byte{} || seen[parent] {
			t.Fatalf("the trace of %v is %v", id, c)
		}
		seen[parent] = true
		if other := c.WithFlags(TraceSampled); other.Flags() != TraceSampled || other.TraceID() != c.TraceID() || other.ParentID() != parent {
			t.Fatalf("with other flags, %v is %v", c, other)
		}
	}
}

// A child stays in the trace, and what has no meaning is not passed on.
func TestChild(t *testing.T) {
	for flags, want := range map[byte]byte{0: 0, 1: 1, 2: 2, 3: 3, 0xff: 3, 0xfc: 0} {
		c := NewTraceContext(NewUUIDv7()).WithFlags(flags)
		child := c.Child()
		if child.TraceID() != c.TraceID() || child.ParentID() == c.ParentID() || child.ParentID() == ([8]byte{}) || child.Flags() != want {
			t.Errorf("the child of %v is %v", c, child)
		}
	}
	// Bug: the trace of no UUID was written with a trace ID of zeros, which receivers must refuse.
	if c := NewTraceContext(UUIDv7{}).Child().WithFlags(TraceSampled); !c.IsZero() || c.String() != "" || c.UnmarshalText(nil) != nil {
		t.Errorf("without an ID, the trace is %v", c)
	}
}
