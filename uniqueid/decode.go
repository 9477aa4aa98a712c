package uniqueid

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Decoded is one reading of an ID's text under one scheme.
type Decoded struct {
	// Scheme is the name of the kind, such as txid.
	Scheme string `json:"scheme"`
	// Layout is the layout of a unique_id: classic, threaded or modern. For
	// other schemes it is empty.
	Layout string `json:"layout,omitempty"`
	// Note is a remark on this reading, for people, or empty.
	Note string `json:"note,omitempty"`
	// Time is when the ID was made, in UTC. It is the zero Time if the scheme contains
	// no time. One after the year 9999 has no JSON.
	Time time.Time `json:"time,omitzero"`
	// Fields are the other fields, each a string or a uint64, by their names.
	Fields map[string]any `json:"fields"`
}

// reading is one way to read a text.
type reading struct {
	scheme            string
	shortest, longest int // in characters
	// decode returns all but the scheme.
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
const lengths = "sharded_id 18 to 23, uuid_v7 36, trace_id 32, traceparent 55 to 512, txid 20, call_number 8, " +
	"unique_id 19 or 24 or 27"

// errSameReading means that another reading has the same to say, or more.
var errSameReading = errors.New("another reading says as much")

// Decode returns every possible reading of text. Most texts have one. Some have two,
// because the alphabets overlap. A sharded_id with a two-digit shard looks like a
// classic unique_id, and one with a three-digit shard like a txid. A - in a modern
// unique_id was another digit before Apache 2.4.47.
//
// The readings come in a fixed order, the most likely first. If there is none, the error
// names all schemes with their lengths. It also says what is wrong with the text for those
// whose length matches.
//
// Texts of other kinds, such as those of rs/xid, can look like these IDs. If a reading's
// time is in the future or before the year 2000, its note says so.
func Decode(text string) ([]Decoded, error) {
	var found []Decoded
	var reasons strings.Builder
	for _, r := range readings {
		if len(text) < r.shortest || len(text) > r.longest {
			continue
		}
		decoded, err := r.decode(text)
		if err == nil {
			decoded.Scheme = r.scheme
			decoded.doubt()
			found = append(found, decoded)
		} else if parseErr, ok := errors.AsType[*ParseError](err); ok {
			fmt.Fprintf(&reasons, "; as a %s: %s", parseErr.Scheme, parseErr.reason())
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("%.64q is no ID; IDs have so many characters: %s%s", text, lengths, &reasons)
}

// doubt adds to the note what makes the reading unlikely.
func (d *Decoded) doubt() {
	var why string
	switch {
	case d.Time.After(time.Now()):
		why = "the time is in the future"
	case d.Time.Year() < 2000 && !d.Time.IsZero():
		why = "the time is before the year 2000"
	default:
		return
	}
	d.Note = strings.TrimPrefix(d.Note+"; "+why+", so the text may be another kind of ID", "; ")
}
