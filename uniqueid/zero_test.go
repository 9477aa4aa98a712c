package uniqueid

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
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
	read = document{UUID: UUIDv7{1}, Head: TraceContext{flags: 1}}
	for _, column := range []struct {
		zero driver.Valuer
		to   sql.Scanner
	}{{UUIDv7{}, &read.UUID}, {TraceContext{}, &read.Head}} {
		value, err := column.zero.Value()
		if err != nil || value != nil {
			t.Errorf("%T is stored as %v, %v; expected NULL", column.zero, value, err)
		}
		if err := column.to.Scan(value); err != nil {
			t.Errorf("%T: %v", column.zero, err)
		}
	}
	if read != (document{}) {
		t.Errorf("read from columns: %+v", read)
	}
}
