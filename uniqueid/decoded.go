package uniqueid

import (
	"encoding/json"
	"fmt"
	"time"
)

// Decoded is one reading of an ID's text under one scheme.
type Decoded struct {
	// Text is the ID.
	Text string
	// Scheme is txid, unique_id, sharded_id, call_number, uuid_v7, trace_id or
	// traceparent.
	Scheme string
	// Layout is the layout of a unique_id: classic, threaded or modern. For
	// other schemes it is empty.
	Layout string
	// Note is a remark on this reading, for people, or empty.
	Note string
	// Time is when the ID was made, in UTC. It is the zero Time if the scheme contains
	// no time.
	Time time.Time
	// Fields are the other fields, in the order of the bits.
	Fields []Field
}

// Field is a named part of an ID.
type Field struct {
	Name string
	// Value is a string or a uint64.
	Value any
}

// MarshalJSON returns an object. Its keys are id, scheme, layout and note (if any),
// time (RFC 3339, if any) and fields. The fields are an object in the order of the
// bits.
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

// MarshalJSON returns an object with a key for every field.
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
