package uniqueid

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Each kind has its chapter.
func TestKindsAreDocumented(t *testing.T) {
	document, err := os.ReadFile("../docs/ids.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"txid", "uuid_v7", "traceparent", "unique_id", "sharded_id", "call_number"} {
		if !strings.Contains(string(document), "\n## "+kind+"\n") {
			t.Errorf("docs/ids.md has no chapter about %s", kind)
		}
	}
}

// A generator appends what it would make, in one text.
func TestAppendNew(t *testing.T) {
	uniqueIDs := newUniqueIDs(t, Modern)
	for scheme, appendNew := range map[string]func([]byte) ([]byte, error){
		"txid":        func(dst []byte) ([]byte, error) { return NewTXIDGenerator().AppendNew(dst), nil },
		"uuid_v7":     func(dst []byte) ([]byte, error) { return NewTXIDGenerator().AppendNewUUIDv7(dst), nil },
		"traceparent": func(dst []byte) ([]byte, error) { return NewTraceContext(NewUUIDv7()).AppendText(dst) },
		"unique_id":   func(dst []byte) ([]byte, error) { return uniqueIDs.AppendNew(dst, time.Now()), nil },
		"sharded_id":  func(dst []byte) ([]byte, error) { return newShardedIDs(t, 3).AppendNew(dst), nil },
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
}
