package uniqueid

import (
	"database/sql"
	"database/sql/driver"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// parsers are all that reads text, by what it reads.
var parsers = map[string]func(string) (any, error){
	"txid":        func(s string) (any, error) { return ParseTXID(s) },
	"unique_id":   func(s string) (any, error) { return ParseUniqueID(s) },
	"sharded_id":  func(s string) (any, error) { return ParseShardedID(s) },
	"of 4":        func(s string) (any, error) { return ParseShardedIDOf(s, 4) },
	"call_number": func(s string) (any, error) { return ParseCallNumber(s) },
	"uuid_v7":     func(s string) (any, error) { return ParseUUIDv7(s) },
	"trace_id":    func(s string) (any, error) { return ParseTraceID(s) },
	"traceparent": func(s string) (any, error) { return ParseTraceContext(s) },
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ parser, text, want string }{
		{"txid", "", `parsing txid "": want 20 characters, found 0`},
		{"txid", "cbpvimguo4hkaps9lf6w", `parsing txid "cbpvimguo4hkaps9lf6w": at offset 19: want one of 0-9a-v (lower-case base32hex), found 'w'`},
		{"txid", "cbpvimguo4hkaps9lf61", `parsing txid "cbpvimguo4hkaps9lf61": at offset 19: want 0 or g, whose last 4 bits are zero, found '1'`},
		{"txid", "cbpvi\ngu\xffé4hkaps9lf", `parsing txid "cbpvi\ngu\xffé4hkaps9lf": at offset 5: want one of 0-9a-v (lower-case base32hex), found '\n'`},
		{"txid", "\xffbpvimguo4hkaps9lf6g", `parsing txid "\xffbpvimguo4hkaps9lf6g": at offset 0: want one of 0-9a-v (lower-case base32hex), found byte 0xff`},
		{"unique_id", "PFobLMCoAQoAADA5AQ", `parsing unique_id "PFobLMCoAQoAADA5AQ": want 19, 24 or 27 characters, found 18`},
		{"unique_id", "PFobLMCoAQoAADA5AQJ", `parsing unique_id classic "PFobLMCoAQoAADA5AQJ": at offset 18: want a character whose last 2 bits are zero, found 'J'`},
		{"unique_id", "PFobLMCo_QoAADA5AQI", `parsing unique_id classic "PFobLMCo_QoAADA5AQI": at offset 8: want one of A-Za-z0-9@-, found '_'`},
		{"unique_id", "ZVPxAAARIjNEVWZ3iJmrzQAAA@c", `parsing unique_id modern "ZVPxAAARIjNEVWZ3iJmrzQAAA@c": at offset 25: want one of A-Za-z0-9-_, found '@'`},
		{"sharded_id", "9f3c4aa5c7f2c2d33", `parsing sharded_id "9f3c4aa5c7f2c2d33": want 18 to 23 characters, found 17`},
		{"sharded_id", "a9f3c4aa5c7f2c2d33", `parsing sharded_id "a9f3c4aa5c7f2c2d33": at offset 0: want one of 0-9 in the shard, found 'a'`},
		{"sharded_id", "39f3c4aa5c7f2c2D33", `parsing sharded_id "39f3c4aa5c7f2c2D33": at offset 15: want one of 0-9a-f, found 'D'`},
		{"sharded_id", "039f3c4aa5c7f2c2d33", `parsing sharded_id "039f3c4aa5c7f2c2d33": at offset 0: want a shard without leading zeros, found '0'`},
		{"sharded_id", "09f3c4aa5c7f2f4240", `parsing sharded_id "09f3c4aa5c7f2f4240": at offset 13: want microseconds below f4240 (1000000), found f4240 (1000000)`},
		{"sharded_id", "69f3c4aa5c7f20000a", `parsing sharded_id "69f3c4aa5c7f20000a": at offset 0: want a shard that 10 microseconds can give, found 6`},
		{"of 4", "29f3c4aa5c7f2c2d33", `parsing sharded_id "29f3c4aa5c7f2c2d33": at offset 0: want shard 3, which is 798003 microseconds modulo 4 shards, found 2`},
		{"call_number", "0000000", `parsing call_number "0000000": want 8 characters, found 7`},
		{"call_number", "0000-000", `parsing call_number "0000-000": at offset 4: want one of 0-9A-Za-z, found '-'`},
		{"call_number", "dxlGgaI4", `parsing call_number "dxlGgaI4": want dxlGgaI3 or less, found dxlGgaI4`},
		{"uuid_v7", "018bcfe5-687b-7048-b456-789abcd5432", `parsing uuid_v7 "018bcfe5-687b-7048-b456-789abcd5432": want 36 characters, found 35`},
		{"uuid_v7", "018bcfe5-687b-7048-b456_789abcd54321", `parsing uuid_v7 "018bcfe5-687b-7048-b456_789abcd54321": at offset 23: want -, found '_'`},
		{"uuid_v7", "018BCFE5-687b-7048-b456-789Gbcd54321", `parsing uuid_v7 "018BCFE5-687b-7048-b456-789Gbcd54321": at offset 27: want one of 0-9a-f, found 'G'`},
		{"uuid_v7", "018bcfe5-687b-4048-b456-789abcd54321", `parsing uuid_v7 "018bcfe5-687b-4048-b456-789abcd54321": at offset 14: want 7, the version, found '4'`},
		{"uuid_v7", "018bcfe5-687b-7048-c456-789abcd54321", `parsing uuid_v7 "018bcfe5-687b-7048-c456-789abcd54321": at offset 19: want 8, 9, a or b, the variant, found 'c'`},
		{"trace_id", "00000000000000000000000000000000", `parsing trace_id "00000000000000000000000000000000": want a trace ID that is not zero, found zeros`},
		{"trace_id", "018BCFE5687b7048b456789abcd54321", `parsing trace_id "018BCFE5687b7048b456789abcd54321": at offset 3: want one of 0-9a-f, found 'B'`},
		{"traceparent", "00-018bcfe5687b7048b456789abcd54321-0000000000000000-03", `parsing traceparent "00-018bcfe5687b7048b456789abcd54321-0000000000000000-03": at offset 36: want a parent ID that is not zero, found zeros`},
	} {
		_, err := parsers[tt.parser](tt.text)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s of %q:\n is %v\nnot %s", tt.parser, tt.text, err, tt.want)
		}
		if _, ok := errors.AsType[*ParseError](err); !ok {
			t.Errorf("%s of %q: error is a %T", tt.parser, tt.text, err)
		}
	}
}

// written is what every ID can be turned into.
type written interface {
	comparable
	fmt.Stringer
	encoding.TextAppender
	encoding.TextMarshaler
	driver.Valuer
}

// testForms writes an ID, then the zero value of its kind, in all forms, and reads each back
// over the other. zero is the text of the zero value, or empty if that means none.
// Bug: what was written of a zero value could not be read back, or depended on the form.
func testForms[T written, P interface {
	*T
	encoding.TextUnmarshaler
	sql.Scanner
}](t *testing.T, id T, zero string) {
	t.Helper()
	var none T
	testForm[T, P](t, id, none, id.String())
	testForm[T, P](t, none, id, zero)
	wrong := []any{7, "x", []byte("x")}
	if zero == "" {
		for _, src := range []any{nil, "", []byte{}} {
			read := id
			if err := P(&read).Scan(src); err != nil || read != none {
				t.Errorf("%T scanned from %#v is %v, %v", id, src, read, err)
			}
		}
		wrong = append(wrong, strings.Repeat("0", len(id.String())))
	} else {
		wrong = append(wrong, nil, "", []byte{})
	}
	if binary, ok := any(id).(encoding.BinaryMarshaler); ok {
		data, err := binary.MarshalBinary()
		if err != nil {
			t.Error(err)
		}
		wrong = append(wrong, data[1:], append(data, 0))
		if zero == "" {
			wrong = append(wrong, make([]byte, len(data)))
		}
	}
	for _, wrong := range wrong {
		read := id
		err := P(&read).Scan(wrong)
		if _, ok := errors.AsType[*ParseError](err); !ok || read != id {
			t.Errorf("%T scanned from %#v is %v, %v", id, wrong, read, err)
		}
	}
}

func testForm[T written, P interface {
	*T
	encoding.TextUnmarshaler
	sql.Scanner
}](t *testing.T, id, other T, text string) {
	t.Helper()
	marshaled, err := id.MarshalText()
	if err != nil || string(marshaled) != text || id.String() != text {
		t.Errorf("the text of %#v is %q, %q, %v; want %q", id, marshaled, id, err, text)
	}
	appended, err := id.AppendText([]byte("before "))
	if err != nil || string(appended) != "before "+text {
		t.Errorf("the text of %#v, appended, is %q, %v", id, appended, err)
	}
	inJSON, err := json.Marshal(id)
	if err != nil || string(inJSON) != `"`+text+`"` {
		t.Errorf("%#v in JSON is %s, %v", id, inJSON, err)
	}
	column, err := id.Value()
	if err != nil || text != "" && column != text || text == "" && column != nil {
		t.Errorf("the value of %#v is %v, %v", id, column, err)
	}
	nullable, err := sql.Null[T]{V: id, Valid: true}.Value()
	if err != nil || nullable != column {
		t.Errorf("the value of %#v in sql.Null is %v, %v", id, nullable, err)
	}
	reads := map[string]func(P) error{
		"text":      func(p P) error { return p.UnmarshalText(marshaled) },
		"JSON":      func(p P) error { return json.Unmarshal(inJSON, p) },
		"SQL":       func(p P) error { return p.Scan(column) },
		"SQL bytes": func(p P) error { return p.Scan(marshaled) },
	}
	if binary, ok := any(id).(encoding.BinaryMarshaler); ok {
		data, err := binary.MarshalBinary()
		if err != nil || (len(data) == 0) != (text == "") {
			t.Errorf("the bytes of %#v are %x, %v", id, data, err)
		}
		reads["binary"] = func(p P) error { return any(p).(encoding.BinaryUnmarshaler).UnmarshalBinary(data) }
		reads["SQL binary"] = func(p P) error { return p.Scan(data) }
	}
	for name, read := range reads {
		back := other
		if err := read(&back); err != nil || back != id {
			t.Errorf("%#v read from %s is %v, %v", id, name, back, err)
		}
	}
}

func TestForms(t *testing.T) {
	testForms(t, NewTXID(), "00000000000000000000")
	for layout := range layouts {
		testForms(t, newUniqueIDs(t, Layout(layout)).New(time.Now()), "AAAAAAAAAAAAAAAAAAA")
	}
	testForms(t, UniqueID{layout: Modern}, "AAAAAAAAAAAAAAAAAAA")
	testForms(t, newShardedIDs(t, 1000).New(), "000000000000000000")
	testForms(t, MaxCallNumber, "00000000")
	testForms(t, NewUUIDv7(), "")
	testForms(t, NewUUIDv7().TraceID(), "")
	testForms(t, NewTraceContext(NewUUIDv7()), "")
}

// Bug: the error for nonsense did not say that it is none, and that for a txid that was cut
// spoke of other kinds only.
func TestDecodeNonsense(t *testing.T) {
	const none = " is no ID; IDs have so many characters: sharded_id 18 to 23, uuid_v7 36 or 32, trace_id 32, " +
		"traceparent 55 to 512, txid 20, call_number 8, unique_id 19 or 24 or 27"
	for text, want := range map[string]string{
		"":                       `""` + none,
		"nonsense!":              `"nonsense!"` + none,
		strings.Repeat("x", 600): `"` + strings.Repeat("x", 64) + `"...` + none,
		"cbpvimguo4hkaps9lf":     `"cbpvimguo4hkaps9lf"` + none + `; as a sharded_id: at offset 0: want one of 0-9 in the shard, found 'c'`,
		"cbpvimguo4hkaps9lf6z": `"cbpvimguo4hkaps9lf6z"` + none +
			`; as a sharded_id: at offset 0: want one of 0-9 in the shard, found 'c'` +
			`; as a txid: at offset 19: want one of 0-9a-v (lower-case base32hex), found 'z'`,
	} {
		if readings, err := Decode(text); err == nil || err.Error() != want || readings != nil {
			t.Errorf("%q is read as %v;\n error is %v\nnot %s", text, readings, err, want)
		}
	}
}
