package uniqueid

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"testing"
)

// Bug: a field that was never set could be written, but what was written could
// not be read back. It made the whole document or row unreadable.
func TestZeroValuesAreReadBack(t *testing.T) {
	type document struct {
		UUID UUIDv7
		Head TraceContext
	}
	text, err := json.Marshal(document{})
	if err != nil || string(text) != `{"UUID":"","Head":""}` {
		t.Errorf("written as %s, %v", text, err)
	}
	read := document{UUID: UUIDv7{1}, Head: TraceContext{flags: 1}}
	if err := json.Unmarshal(text, &read); err != nil || read != (document{}) {
		t.Errorf("read from JSON: %+v, %v", read, err)
	}
	var stream bytes.Buffer
	if err := gob.NewEncoder(&stream).Encode([]UUIDv7{{}}); err != nil {
		t.Fatal(err)
	}
	var list []UUIDv7
	if err := gob.NewDecoder(&stream).Decode(&list); err != nil || len(list) != 1 || list[0] != (UUIDv7{}) {
		t.Errorf("read from gob: %+v, %v", list, err)
	}
	value, err := UUIDv7{}.Value()
	if err != nil || value != nil {
		t.Errorf("stored as %v, %v; expected NULL", value, err)
	}
	if id := (UUIDv7{1}); id.Scan(value) != nil || !id.IsZero() {
		t.Errorf("read from a column: %v", id)
	}
}
