package uniqueid

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// setup is what all kinds need to make IDs.
func setup(t *testing.T) Setup {
	return Setup{
		UniqueIDs:   func() (*UniqueIDGenerator, error) { return newUniqueIDs(t, Classic), nil },
		Shards:      12,
		CallNumbers: func() (*CallNumberGenerator, error) { return NewCallNumberGenerator(&memoryStore{}), nil },
	}
}

// What a kind makes is read as that kind, and nothing is made twice.
func TestKindsReadWhatTheyMake(t *testing.T) {
	for _, kind := range Kinds() {
		if kind.New == nil {
			continue
		}
		t.Run(kind.Scheme, func(t *testing.T) {
			generate, err := kind.New(setup(t))
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]bool)
			for range 1000 {
				text, err := generate(t.Context(), time.Now())
				if err != nil || seen[text] {
					t.Fatalf("made %q, %v; seen before: %t", text, err, seen[text])
				}
				seen[text] = true
				readings, err := Decode(text)
				if err != nil || !slices.ContainsFunc(readings, func(d Decoded) bool { return d.Scheme == kind.Scheme }) {
					t.Fatalf("%q is read as %+v, %v", text, readings, err)
				}
			}
		})
	}
}

// If a kind lacks something that it needs, there is an error and no ID.
func TestKindsWithoutSetup(t *testing.T) {
	gone := errors.New("no such disk")
	for _, tt := range []struct {
		scheme string
		setup  Setup
		want   string
	}{
		{"unique_id", Setup{}, "making unique_ids: there is no generator of them in the setup"},
		{"unique_id", Setup{UniqueIDs: func() (*UniqueIDGenerator, error) { return nil, gone }}, "no such disk"},
		{"sharded_id", Setup{Shards: -1}, "making a sharded_id generator: number of shards is -1: want 1 to 1000000"},
		{"call_number", Setup{}, "making call_numbers: there is no generator of them in the setup"},
		{"call_number", Setup{CallNumbers: func() (*CallNumberGenerator, error) { return nil, gone }}, "no such disk"},
	} {
		if _, err := kindOf(t, tt.scheme).New(tt.setup); err == nil || err.Error() != tt.want {
			t.Errorf("%s: error is %v, want %s", tt.scheme, err, tt.want)
		}
	}
	generate, err := kindOf(t, "call_number").New(Setup{CallNumbers: func() (*CallNumberGenerator, error) {
		return NewCallNumberGenerator(&memoryStore{err: gone}), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := generate(context.Background(), time.Time{}); text != "" || !errors.Is(err, gone) {
		t.Errorf("made %q, %v", text, err)
	}
}

func kindOf(t *testing.T, scheme string) Kind {
	t.Helper()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Scheme == scheme })
	if i < 0 {
		t.Fatalf("there is no kind %q", scheme)
	}
	return kinds[i]
}

// Each kind that can be made has its chapter.
func TestKindsAreDocumented(t *testing.T) {
	document, err := os.ReadFile("../docs/ids.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		if kind.New != nil && !strings.Contains(string(document), "\n## "+kind.Scheme+"\n") {
			t.Errorf("docs/ids.md has no chapter about %s", kind.Scheme)
		}
	}
}

// A generator appends what it would make, in one text.
func TestAppendNew(t *testing.T) {
	uniqueIDs := newUniqueIDs(t, Modern)
	callNumbers := NewCallNumberGenerator(&memoryStore{})
	for scheme, appendNew := range map[string]func([]byte) ([]byte, error){
		"txid":        func(dst []byte) ([]byte, error) { return NewTXIDGenerator().AppendNew(dst), nil },
		"uuid_v7":     func(dst []byte) ([]byte, error) { return NewUUIDv7Generator().AppendNew(dst), nil },
		"traceparent": func(dst []byte) ([]byte, error) { return NewTraceContextGenerator().AppendNew(dst), nil },
		"unique_id":   func(dst []byte) ([]byte, error) { return uniqueIDs.AppendNew(dst, time.Now()), nil },
		"sharded_id":  func(dst []byte) ([]byte, error) { return newShardedIDs(t, 3).AppendNew(dst), nil },
		"call_number": func(dst []byte) ([]byte, error) { return callNumbers.AppendNew(t.Context(), dst) },
	} {
		text, err := appendNew([]byte("id="))
		if err != nil || string(text[:3]) != "id=" {
			t.Errorf("%s: appended %q, %v", scheme, text, err)
			continue
		}
		if readings, err := Decode(string(text[3:])); err != nil || readings[0].Scheme != scheme {
			t.Errorf("%s: appended %q, which is %+v, %v", scheme, text, readings, err)
		}
	}
	failing := NewCallNumberGenerator(&memoryStore{err: errors.New("no such disk")})
	if text, err := failing.AppendNew(t.Context(), []byte("id=")); err == nil || string(text) != "id=" {
		t.Errorf("appended %q, %v", text, err)
	}
}
