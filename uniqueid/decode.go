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
	// Scheme is the name of the kind, such as txid.
	Scheme string `json:"scheme"`
	// Layout is the layout of a unique_id: classic, threaded or modern. For
	// other schemes it is empty.
	Layout string `json:"layout,omitempty"`
	// Note is a remark on this reading, for people, or empty.
	Note string `json:"note,omitempty"`
	// Time is when the ID was made, in UTC. It is the zero Time if the scheme contains
	// no time.
	Time time.Time `json:"time,omitzero"`
	// Fields are the other fields, each a string or a uint64, by their names.
	Fields map[string]any `json:"fields"`
}

// MarshalJSON returns an object with the keys above. [time.Time] refuses a year after 9999, which another
// kind of ID may have.
func (d Decoded) MarshalJSON() ([]byte, error) {
	type plain Decoded
	out := struct {
		plain
		Time   string         `json:"time,omitempty"`
		Fields map[string]any `json:"fields"`
	}{plain(d), "", d.Fields}
	if !d.Time.IsZero() {
		out.Time = d.Time.Format(time.RFC3339Nano)
	}
	return json.Marshal(out)
}

// readings are all ways to read a text, by their schemes, the most likely first: those in the
// smallest alphabet. A text in a small alphabet is seldom a text in a larger alphabet by chance.
// Each returns all but the scheme.
var readings = []struct {
	scheme string
	decode func(string) (Decoded, error)
}{
	{"sharded_id", decodeShardedID},
	{"uuid_v7", decodeUUIDv7},
	{"trace_id", decodeTraceID},
	{"traceparent", decodeTraceparent},
	{"txid", decodeTXID},
	{"call_number", decodeCallNumber},
	{"unique_id", decodeUniqueID},
	{"unique_id", decodeEarlyModern},
}

// errSameReading means that another reading has the same to say, or more.
var errSameReading = errors.New("another reading says as much")

// Decode returns every possible reading of text. Most texts have one. Some have two,
// because the alphabets overlap. A sharded_id with a two-digit shard looks like a
// classic unique_id, and one with a three-digit shard like a txid. A - in a modern
// unique_id was another digit before Apache 2.4.47.
//
// The readings come in a fixed order, the most likely first. If there is none, the error says
// what is wrong with the text for each scheme.
//
// Texts of other kinds, such as those of rs/xid, can look like these IDs. If a reading's
// time is in the future or before the year 2000, its note says so.
func Decode(text string) ([]Decoded, error) {
	var found []Decoded
	var reasons strings.Builder
	for _, r := range readings {
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
	return nil, fmt.Errorf("%.64q is no ID%s", text, &reasons)
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
