package uniqueid

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Decoded is one reading of an ID's text under one scheme.
type Decoded struct {
	// Text is the ID.
	Text string `json:"id"`
	// Scheme is the name of the kind, such as txid.
	Scheme string `json:"scheme"`
	// Layout is the layout of a unique_id: classic, threaded or modern. For
	// other schemes it is empty.
	Layout string `json:"layout,omitempty"`
	// Note is a remark on this reading, for people, or empty.
	Note string `json:"note,omitempty"`
	// Time is when the ID was made, in UTC. It is the zero Time if the scheme contains
	// no time.
	Time time.Time `json:"time"`
	// Fields are the other fields, in the order of the bits.
	Fields Fields `json:"fields"`
}

// MarshalJSON returns an object with the keys above. The time is as in RFC 3339, also
// after the year 9999.
func (d Decoded) MarshalJSON() ([]byte, error) {
	type plain Decoded
	out := struct {
		plain
		Time   string `json:"time,omitempty"`
		Fields Fields `json:"fields"`
	}{plain: plain(d), Fields: d.Fields}
	if !d.Time.IsZero() {
		out.Time = d.Time.Format(time.RFC3339Nano)
	}
	return json.Marshal(out)
}

// Fields are named parts of an ID. In JSON, they are an object that keeps their order.
type Fields []Field

// Field is a named part of an ID.
type Field struct {
	Name string
	// Value is a string or a uint64.
	Value any
}

// MarshalJSON returns an object with a key for every field.
func (f Fields) MarshalJSON() ([]byte, error) {
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

// reading is one way to read a text.
type reading struct {
	scheme            string
	shortest, longest int // in characters
	// decode returns all but the text and the scheme.
	decode func(string) (Decoded, error)
}

// longestTraceparent is how much of a future version of traceparent is read, in
// characters.
const longestTraceparent = 512

// readings are all ways, the most likely first: those in the smallest alphabet. A text in
// a small alphabet is seldom a text in a larger alphabet by chance.
var readings = []reading{
	{"sharded_id", shardedTailLen + 1, shardedMaxText, decodeShardedID},
	{"uuid_v7", uuidTextLen, uuidTextLen, decodeUUIDv7},
	{"uuid_v7", traceIDTextLen, traceIDTextLen, decodeBareUUIDv7},
	{"trace_id", traceIDTextLen, traceIDTextLen, decodeTraceID},
	{"traceparent", traceparentLen, longestTraceparent, decodeTraceparent},
	{"txid", txidTextLen, txidTextLen, decodeTXID},
	{"call_number", callNumberText, callNumberText, decodeCallNumber},
	{"unique_id", 19, 19, decodeUniqueID},
	{"unique_id", 24, 24, decodeUniqueID},
	{"unique_id", 27, 27, decodeUniqueID},
	{"unique_id", 27, 27, decodeEarlyModern},
}

// lengths says how many characters the texts of readings have.
const lengths = "sharded_id 18 to 23, uuid_v7 36 or 32, trace_id 32, traceparent 55 to 512, txid 20, call_number 8, " +
	"unique_id 19 or 24 or 27"

// errSameReading means that another reading has the same to say, or more.
var errSameReading = errors.New("another reading says as much")

// Decode returns every possible reading of text. Most texts have one. Some have two,
// because the alphabets overlap. A sharded_id with a two-digit shard looks like a
// classic unique_id, and one with a three-digit shard like a txid. A - in a modern
// unique_id was another digit before Apache 2.4.47. 32 hexadecimal digits are a trace
// ID, and may be a UUIDv7 without its hyphens.
//
// The readings come in a fixed order, the most likely first. If there is none, the error
// names all schemes with their lengths. It also says what is wrong with the text for those
// whose length matches.
//
// Texts of other kinds, such as those of rs/xid, can look like these IDs. If a reading's
// time is in the future or before the year 2000, or the text is a decimal number, its note says so.
func Decode(text string) ([]Decoded, error) {
	var found []Decoded
	var reasons strings.Builder
	for _, r := range readings {
		if len(text) < r.shortest || len(text) > r.longest {
			continue
		}
		decoded, err := r.decode(text)
		if err == nil {
			decoded.Text, decoded.Scheme = text, r.scheme
			decoded.doubt()
			found = append(found, decoded)
		} else if parseErr, ok := errors.AsType[*ParseError](err); ok {
			fmt.Fprintf(&reasons, "; as a %s: %s", parseErr.Scheme, parseErr.reason())
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("%s is no ID; IDs have so many characters: %s%s", quote(text), lengths, &reasons)
}

// doubt adds to the note what makes the reading unlikely.
func (d *Decoded) doubt() {
	var why string
	switch {
	case d.Time.After(time.Now()):
		why = "the time is in the future"
	case d.Time.Year() < 2000 && !d.Time.IsZero():
		why = "the time is before the year 2000"
	case strings.Trim(d.Text, "0123456789") == "":
		why = "it is a decimal number, such as a snowflake"
	default:
		return
	}
	d.Note = strings.TrimPrefix(d.Note+"; "+why+", so the text may be another kind of ID", "; ")
}
