package uniqueid

import (
	"cmp"
	"database/sql"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
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
		{"txid", "\xffbpvimguo4hkaps9lf6g", `parsing txid "\xffbpvimguo4hkaps9lf6g": at offset 0: want one of 0-9a-v (lower-case base32hex), found '�'`},
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

// written is what every ID can be turned into, and read what reads it.
type written interface {
	comparable
	fmt.Stringer
	encoding.TextAppender
}

type read[T any] interface {
	*T
	encoding.TextUnmarshaler
	sql.Scanner
}

// testForms writes an ID, then the zero value of its kind, in all forms, and reads each back
// over the other. zero is the text of the zero value, empty if that means none.
// Bug: what was written of a zero value could not be read back, or depended on the form.
func testForms[T written, P read[T]](t *testing.T, id T, zero string) {
	t.Helper()
	var none T
	testForm[T, P](t, id, none, id.String())
	testForm[T, P](t, none, id, zero)
	wrong := []any{7, "x", []byte("x")}
	if zero == "" {
		testForm[T, P](t, none, id, zero, nil, "", []byte{})
		wrong = append(wrong, strings.Repeat("0", len(id.String())))
	} else {
		wrong = append(wrong, nil, "", []byte{})
	}
	if data := bytesOf(t, id); data != nil {
		wrong = append(wrong, data[1:], append(data, 0))
		if zero == "" {
			wrong = append(wrong, make([]byte, len(data)))
		}
	}
	for _, wrong := range wrong {
		back := id
		err := P(&back).Scan(wrong)
		if _, ok := errors.AsType[*ParseError](err); !ok || back != id {
			t.Errorf("%T scanned from %#v is %v, %v", id, wrong, back, err)
		}
	}
}

// testForm also scans the ID from other columns.
func testForm[T written, P read[T]](t *testing.T, id, other T, text string, columns ...any) {
	t.Helper()
	appended, err1 := id.AppendText([]byte("before "))
	inJSON, err2 := json.Marshal(id) // by MarshalText
	column, err3 := sql.Null[T]{V: id, Valid: true}.Value()
	check(t, errors.Join(err1, err2, err3))
	got := fmt.Sprintf("%s, %s, %s, %v", id, appended, inJSON, column)
	want := fmt.Sprintf(`%s, before %s, "%s", %s`, text, text, text, cmp.Or(text, "<nil>"))
	if data := bytesOf(t, id); got != want || data != nil && (len(data) == 0) != (text == "") {
		t.Errorf("%#v is written as %s\nand %x; want %s", id, got, data, want)
	} else if data != nil {
		columns = append(columns, data)
	}
	for _, column := range append(columns, column, []byte(text)) {
		back := other
		if err := P(&back).Scan(column); err != nil || back != id {
			t.Errorf("%#v scanned from %#v is %v, %v", id, column, back, err)
		}
	}
	back := other
	if err := json.Unmarshal(inJSON, P(&back)); err != nil || back != id {
		t.Errorf("%#v read from %s is %v, %v", id, inJSON, back, err)
	}
}

// bytesOf returns the bytes of an ID, nil if its kind has none, and reads them back.
func bytesOf[T comparable](t *testing.T, id T) []byte {
	t.Helper()
	from, ok := any(id).(encoding.BinaryMarshaler)
	if !ok {
		return nil
	}
	var back T
	data, err := from.MarshalBinary()
	if err == nil {
		err = any(&back).(encoding.BinaryUnmarshaler).UnmarshalBinary(data)
	}
	if err != nil || back != id {
		t.Errorf("%#v read from %x is %v, %v", id, data, back, err)
	}
	return append([]byte{}, data...)
}

func TestForms(t *testing.T) {
	testForms(t, NewTXID(), "00000000000000000000")
	for layout := range layouts {
		testForms(t, newUniqueIDs(Layout(layout)).New(time.Now()), "AAAAAAAAAAAAAAAAAAA")
	}
	testForms(t, UniqueID{layout: Modern}, "AAAAAAAAAAAAAAAAAAA")
	testForms(t, Must(NewShardedIDGenerator(1000)).New(), "000000000000000000")
	testForms(t, MaxCallNumber, "00000000")
	testForms(t, NewUUIDv7(), "")
	testForms(t, NewUUIDv7().TraceID(), "")
	var trace TraceContext
	if err := trace.Scan(nil); err != nil || !trace.IsZero() {
		t.Errorf("NULL is read as %v, %v", trace, err)
	}
	stored, _ := NewTraceContext(NewUUIDv7()).Value()
	if err := trace.Scan(stored); err != nil || trace.String() != stored {
		t.Errorf("%v is read as %v, %v", stored, trace, err)
	}
}

// Bug: the error for nonsense did not say that it is none, and that for a txid that was cut
// spoke of other kinds only.
func TestDecodeNonsense(t *testing.T) {
	for text, want := range map[string]string{
		"": `"" is no ID; as a sharded_id: want 18 to 23 characters, found 0`,
		strings.Repeat("x", 600): `"` + strings.Repeat("x", 64) + `" is no ID; as a sharded_id: want 18 to 23 characters, found 600; as a uuid_v7: want 36 characters, found 600; ` +
			`as a trace_id: want 32 characters, found 600; as a traceparent: at offset 55: want -, found 'x'; as a txid: want 20 characters, found 600; ` +
			`as a call_number: want 8 characters, found 600; as a unique_id: want 19, 24 or 27 characters, found 600`,
		"cbpvimguo4hkaps9lf": `"cbpvimguo4hkaps9lf" is no ID; as a sharded_id: at offset 0: want one of 0-9 in the shard, found 'c'`,
	} {
		if readings, err := Decode(text); err == nil || !strings.HasPrefix(err.Error(), want) || readings != nil {
			t.Errorf("%q is read as %v;\n error is %v\nnot %s", text, readings, err, want)
		}
	}
}

// Compare orders IDs by time, where they have one, and all of them the same way in both directions.
func TestCompare(t *testing.T) {
	testCompare(t, ParseTXID, "00000000000000000000", "4om9qi54000000000000", "cbpvimguo4hkaps9lf60", "cbpvimguo4hkaps9lf6g")
	testCompare(t, ParseUUIDv7, "018bcfe5-687b-7048-b456-789abcd54321", "018bcfe5-687c-7048-b456-789abcd54320")
	testCompare(t, ParseTraceID, "00000000000000000000000000000001", "4bf92f3577b34da6a3ce929d0e0e4736")
	// Texts sort differently: a to z are before 0, and the shard is not the time.
	testCompare(t, ParseUniqueID, "O5rKAH8AAAEAAAABAAE", "O5rKAMCoAQoAADA5@@-7777-", "PFobLMCoAQoAADA5AQI", "ZVPxAAARIjNEVWZ3iJmrzQAAAAc", "------------------8")
	testCompare(t, ParseShardedID, "39f3c4aa5c7f2c2d33", "1000004aa5c7f2c2d4a", "300aa4aa5c7f2c2d51")
	testCompare(t, ParseCallNumber, "00000000", "009NKUO8", "03KOE60u", "dxlGgaI3")
}

func testCompare[T interface{ Compare(T) int }](t *testing.T, parse func(string) (T, error), ascending ...string) {
	t.Helper()
	for i, a := range ascending {
		for j, b := range ascending {
			if got := Must(parse(a)).Compare(Must(parse(b))); got != cmp.Compare(i, j) {
				t.Errorf("%s compared with %s is %d", a, b, got)
			}
		}
	}
}

func failed[T any](_ T, err error) error { return err }

// Bug: what was missing was noticed by the first ID, some of it by a panic that nobody can recover from, or
// never.
func TestConstructorsCheckTheirArguments(t *testing.T) {
	t.Chdir(t.TempDir())
	unmade, err := NewCallNumberGenerator(new(FileRunStore))
	check(t, err)
	node := Must(FixedNode(netip.MustParseAddr("192.0.2.1"), 1<<22))
	check(t, failed(NewUniqueIDGenerator(Threaded, node)))
	for _, tt := range []struct {
		err  error
		want string
	}{
		{failed(NewUniqueIDGenerator(Classic, node)), "making a unique_id generator: pid 4194304 does not fit in 22 bits, which the classic layout needs"},
		{failed(NewCallNumberGenerator(nil)), "making a call_number generator: the store is missing: pass a RunStore, such as a FileRunStore"},
		{failed(unmade.New(t.Context())), "making a call number: taking the next run: the store of runs has no path: make it with NewFileRunStore"},
		{failed(NewFileRunStore("")), `making a store of runs: "" is not the path of a file`},
		{failed(NewFileRunStore(".")), `making a store of runs: "." is not the path of a file`},
		{failed(NewFileRunStore("new/")), `making a store of runs: "new/" is not the path of a file`},
		{failed(NewUniqueIDGenerator(Classic, Node{})), "making a unique_id generator: the node is missing: make one with AutoNode, FixedNode or RandomNode"},
		{failed(NewUniqueIDGenerator(3, Node{})), "making a unique_id generator: unknown layout 3"},
		{failed(NewShardedIDGenerator(0)), "making a sharded_id generator: number of shards is 0: want 1 to 1000000"},
		{failed(NewShardedIDGenerator(MaxShards + 1)), "making a sharded_id generator: number of shards is 1000001: want 1 to 1000000"},
		{failed(ParseShardedIDOf("39f3c4aa5c7f2c2d33", 0)), "number of shards is 0: want 1 to 1000000"},
		{failed(FixedNode(netip.Addr{}, 1)), `making a node: "invalid IP" is not an IPv4 address`},
		{failed(FixedNode(netip.MustParseAddr("2001:db8::1"), 1)), `making a node: "2001:db8::1" is not an IPv4 address`},
		{failed(ParseLayout("Modern")), `unknown layout "Modern": want classic, threaded or modern`},
	} {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("error is %v\n     not %s", tt.err, tt.want)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("bad paths left %v, %v", left, err)
	}
	// Options that are nil leave the defaults.
	options := []Option{nil, WithClock(nil), WithRandom(nil)}
	NewTXIDGenerator(options...).NewUUIDv7()
	Must(NewShardedIDGenerator(1, options...)).New()
	defer func() {
		if err, ok := recover().(*ParseError); !ok {
			t.Errorf("Must with an error panics with %v", err)
		}
	}()
	Must(ParseTXID("x"))
}
