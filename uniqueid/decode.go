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
	// Scheme is txid, unique_id, sharded_id or call_number.
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
// unique_id was another digit before Apache 2.4.47. The readings come
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
		"8 characters (call_number), 20 (txid), 19, 24 or 27 (unique_id) or 18 to 23 (sharded_id)")
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
}

func decodeTXID(text string) (Decoded, error) {
	id, err := ParseTXID(text)
	return Decoded{
		Text:   text,
		Scheme: "txid",
		Time:   id.Time(),
		Fields: []Field{{"random", fmt.Sprintf("%014x", id.Random())}},
	}, err
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
