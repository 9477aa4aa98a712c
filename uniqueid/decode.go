package uniqueid

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Decoded is what an ID's text says if it is of one scheme.
type Decoded struct {
	// Text is the ID.
	Text string
	// Scheme is txid, unique_id, sharded_id, call_number, uuid_v7, trace_id or
	// traceparent.
	Scheme string
	// Layout is the layout of a unique_id: classic, threaded or modern. For
	// other schemes it is empty.
	Layout string
	// Note says what a reader should know of this reading, or is empty.
	Note string
	// Time is when the ID was made, in UTC. It is the zero Time if the scheme
	// has none.
	Time time.Time
	// Fields are the rest, in the order of the bits.
	Fields []Field
}

// Field is a named part of an ID.
type Field struct {
	Name string
	// Value is a string or a uint64.
	Value any
}

// Decode tells all that text can be. Most texts have one reading; some have
// two, because the alphabets overlap: a sharded_id with two digits of shard
// looks like a classic unique_id, one with three like a txid, and a - in a modern
// unique_id was another digit before Apache 2.4.47. 32 hexadecimal digits are a
// trace ID, and may be a UUIDv7 without its hyphens. The readings come
// in a fixed order, the likelier first. If there is none, the error holds a
// [*ParseError] for every scheme whose length is that of text, or one about the
// length.
func Decode(text string) ([]Decoded, error) {
	var readings []Decoded
	var errs []error
	for _, d := range decoders {
		if len(text) < d.shortest || len(text) > d.longest {
			continue
		}
		reading, err := d.decode(text)
		if errors.Is(err, errSameReading) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		readings = append(readings, reading)
	}
	switch {
	case len(readings) > 0:
		return readings, nil
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	}
	return nil, lengthError("id", text,
		"8 characters (call_number), 20 (txid), 19, 24 or 27 (unique_id), 18 to 23 (sharded_id), "+
			"36 (uuid_v7), 32 (trace_id) or 55 (traceparent)")
}

// decoder reads texts of one scheme.
type decoder struct {
	shortest, longest int // in characters
	decode            func(string) (Decoded, error)
}

// decoders stand in the order of their readings. A text of the alphabet of
// sharded_id is seldom one of the larger alphabets by chance.
var decoders = []decoder{
	{callNumberText, callNumberText, decodeCallNumber},
	{shardedTailLen + 1, shardedMaxText, decodeShardedID},
	{txidTextLen, txidTextLen, decodeTXID},
	{19, 19, decodeUniqueID},
	{24, 24, decodeUniqueID},
	{27, 27, decodeUniqueID},
	{27, 27, decodeEarlyModern},
	{uuidTextLen, uuidTextLen, decodeUUIDv7},
	{traceIDTextLen, traceIDTextLen, decodeBareUUIDv7},
	{traceIDTextLen, traceIDTextLen, decodeTraceID},
	{traceparentLen, longestTraceparent, decodeTraceparent},
}

// longestTraceparent is how much of a version of traceparent that does not exist
// yet is read, in characters.
const longestTraceparent = 512

// maybeUUIDv7 is the note on what would be a UUIDv7 if it came from this package.
const maybeUUIDv7 = "one in 64 random trace IDs looks like a UUIDv7"

func decodeTXID(text string) (Decoded, error) {
	id, err := ParseTXID(text)
	return Decoded{
		Text:   text,
		Scheme: "txid",
		Time:   id.Time(),
		Fields: []Field{
			{"random", fmt.Sprintf("%014x", id.Random())},
			{"uuid_v7_first", id.UUIDv7(0).String()},
			{"uuid_v7_last", id.UUIDv7(1<<uuidMoreBits - 1).String()},
		},
	}, err
}

func decodeUUIDv7(text string) (Decoded, error) {
	id, err := ParseUUIDv7(text)
	if err != nil {
		return Decoded{}, err
	}
	return uuidReading(text, id), nil
}

func uuidReading(text string, id UUIDv7) Decoded {
	fields := []Field{{"random", fmt.Sprintf("%014x", id.Random())}, {"more", fmt.Sprintf("%05x", id.More())}}
	if txid, ok := id.TXID(); ok {
		fields = append(fields, Field{"txid", txid.String()})
	}
	return Decoded{
		Text:   text,
		Scheme: "uuid_v7",
		Time:   id.Time(),
		Fields: append(fields, Field{"trace_id", id.TraceID().String()}),
	}
}

// decodeBareUUIDv7 reads the digits of a UUIDv7 without hyphens, as trace IDs
// are written.
func decodeBareUUIDv7(text string) (Decoded, error) {
	trace, err := ParseTraceID(text)
	if err != nil {
		return Decoded{}, err
	}
	id, ok := trace.UUIDv7()
	if !ok {
		return Decoded{}, &ParseError{"uuid_v7", text, -1, "version 7 and variant 10 in binary", text[12:16] + "-" + text[16:20]}
	}
	reading := uuidReading(text, id)
	reading.Fields = append([]Field{{"uuid_v7", id.String()}}, reading.Fields...)
	reading.Note = maybeUUIDv7
	return reading, nil
}

func decodeTraceID(text string) (Decoded, error) {
	id, err := ParseTraceID(text)
	return Decoded{Text: text, Scheme: "trace_id", Fields: []Field{{"trace_id", id.String()}}}, err
}

func decodeTraceparent(text string) (Decoded, error) {
	c, err := ReceiveTraceparent(text)
	if err != nil {
		return Decoded{}, err
	}
	parent := c.ParentID()
	reading := Decoded{
		Text:   text,
		Scheme: "traceparent",
		Fields: []Field{
			{"version", text[:2]},
			{"trace_id", c.TraceID().String()},
			{"parent_id", hexText(parent[:])},
			{"flags", fmt.Sprintf("%02x", c.Flags())},
			{"sampled", yesNo(c.Flags()&TraceSampled != 0)},
			{"random_trace_id", yesNo(c.Flags()&TraceRandom != 0)},
		},
	}
	if id, ok := c.TraceID().UUIDv7(); ok {
		reading.Time = id.Time()
		reading.Fields = append(reading.Fields, Field{"uuid_v7", id.String()})
		if txid, ok := id.TXID(); ok {
			reading.Fields = append(reading.Fields, Field{"txid", txid.String()})
		}
		reading.Note = maybeUUIDv7
	}
	return reading, nil
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func decodeShardedID(text string) (Decoded, error) {
	id, err := ParseShardedID(text)
	return Decoded{
		Text:   text,
		Scheme: "sharded_id",
		Time:   id.Time(),
		Fields: []Field{
			{"shard", uint64(id.Shard())},
			{"random", fmt.Sprintf("%04x", id.Random())},
		},
	}, err
}

func decodeCallNumber(text string) (Decoded, error) {
	n, err := ParseCallNumber(text)
	return Decoded{
		Text:   text,
		Scheme: "call_number",
		Fields: []Field{
			{"version", uint64(n.Version())},
			{"run", uint64(n.Run())},
			{"sequence", uint64(n.Sequence())},
		},
	}, err
}

func decodeUniqueID(text string) (Decoded, error) {
	id, err := ParseUniqueID(text)
	if err != nil {
		return Decoded{}, err
	}
	fields, note := uniqueIDFields(id)
	return Decoded{
		Text:   text,
		Scheme: "unique_id",
		Layout: id.Layout().String(),
		Note:   note,
		Time:   id.Time(),
		Fields: fields,
	}, nil
}

// uniqueIDFields are the fields of an ID, and what to know of them. Whether the
// node is an address and a pid or random bits, the bits do not tell, unless they
// cannot be an address and a pid.
func uniqueIDFields(id UniqueID) (fields []Field, note string) {
	counter := Field{"counter", uint64(id.Counter())}
	thread := Field{"thread", uint64(id.Thread())}
	address, pid := Field{"address", id.Addr().String()}, Field{"pid", uint64(id.PID())}
	node := Field{"node", hex.EncodeToString(id.data[4:12])}
	switch {
	case id.Layout() == Modern:
		root := id.Root()
		return []Field{{"root", hex.EncodeToString(root[:])}, counter, thread}, ""
	case id.Layout() == Threaded && nodeIsRandom(id):
		return []Field{node, counter, thread}, noteRandom
	case id.Layout() == Threaded:
		return []Field{address, pid, counter, thread}, noteMaybeRandom
	case nodeIsRandom(id):
		return []Field{node, counter}, noteRandom
	}
	return []Field{address, {"pid_field", uint64(id.PIDField())}, {"extra", uint64(id.Extra())}, pid, counter}, noteMaybeRandom
}

const (
	noteRandom      = "the node is random bits, for it is no address and pid"
	noteMaybeRandom = "address and pid are random bits if the node was random, which an ID does not tell"
)

// nodeIsRandom reports whether the node of a classic or threaded ID cannot be an
// address and a pid.
func nodeIsRandom(id UniqueID) bool {
	first := id.data[4]
	return first == 0 || first >= 224 || id.PID()>>pidBits != 0 // this network, multicast, reserved
}

// errSameReading means that another decoder has the same to say, or more.
var errSameReading = errors.New("another reading says as much")

// decodeEarlyModern reads the modern layout in the alphabet that Apache 2.4.29
// to 2.4.46 wrote it in, which has @ and - where today's has - and _. What has
// neither @ nor - is the same in both, and what has a _ is today's.
func decodeEarlyModern(text string) (Decoded, error) {
	if strings.Contains(text, "_") || !strings.ContainsAny(text, "@-") {
		return Decoded{}, errSameReading
	}
	reading, err := decodeUniqueID(strings.NewReplacer("@", "-", "-", "_").Replace(text))
	if err != nil {
		return Decoded{}, errSameReading // today's reader names what is wrong
	}
	reading.Text = text
	reading.Note = "in the alphabet of Apache 2.4.29 to 2.4.46"
	return reading, nil
}

// MarshalJSON is an object with the keys id, scheme, layout and note (if any),
// time (RFC 3339, if any) and fields, an object in the order of the bits.
func (d Decoded) MarshalJSON() ([]byte, error) {
	out := struct {
		ID     string `json:"id"`
		Scheme string `json:"scheme"`
		Layout string `json:"layout,omitempty"`
		Note   string `json:"note,omitempty"`
		Time   string `json:"time,omitempty"`
		Fields fields `json:"fields"`
	}{d.Text, d.Scheme, d.Layout, d.Note, "", d.Fields}
	if !d.Time.IsZero() {
		out.Time = d.Time.Format(time.RFC3339Nano)
	}
	return json.Marshal(out)
}

// fields are written as an object that keeps their order.
type fields []Field

// MarshalJSON is an object with a key for every field.
func (f fields) MarshalJSON() ([]byte, error) {
	object := []byte{'{'}
	for i, field := range f {
		if i > 0 {
			object = append(object, ',')
		}
		value, err := json.Marshal(field.Value)
		if err != nil {
			return nil, fmt.Errorf("writing the field %s: %w", field.Name, err)
		}
		object = fmt.Appendf(object, "%q:%s", field.Name, value)
	}
	return append(object, '}'), nil
}
