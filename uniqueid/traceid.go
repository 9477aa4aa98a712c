package uniqueid

import (
	"bytes"
	"database/sql/driver"
	"encoding/hex"
)

const traceIDTextLen = 32

// TraceID names a trace in W3C Trace Context: 128 bits, not all zero. Its text
// is 32 hexadecimal digits in lower case. The bits of a [UUIDv7] are a TraceID, so a [TXID]
// leads to its trace. The zero TraceID means none.
type TraceID [16]byte

// TraceID returns the UUID's 128 bits as a TraceID.
func (id UUIDv7) TraceID() TraceID { return TraceID(id) }

// UUIDv7 returns the trace ID's 128 bits as a UUIDv7. The result is false if they are
// not one. One in 64 random trace IDs looks like one, with a random time.
func (id TraceID) UUIDv7() (UUIDv7, bool) {
	uuid := UUIDv7(id)
	return uuid, uuid.isVersion7()
}

// ParseTraceID reads the 32 digits of a TraceID. The error is a [*ParseError].
func ParseTraceID(text string) (id TraceID, err error) {
	r := reader{scheme: "trace_id", text: text}
	r.length(len(text) == traceIDTextLen, "32 characters")
	r.hex(0, id[:])
	if id.IsZero() {
		r.fail(-1, "a trace ID that is not zero", "zeros")
	}
	return result(r, id)
}

// Compare returns -1, 0 or 1, by the order of texts, which is that of bytes.
func (id TraceID) Compare(other TraceID) int { return bytes.Compare(id[:], other[:]) }

// IsZero reports whether this is the zero value, which means none.
func (id TraceID) IsZero() bool { return id == TraceID{} }

// String returns the ID's 32 digits, or nothing for the zero TraceID.
func (id TraceID) String() string {
	text, _ := id.AppendText(make([]byte, 0, traceIDTextLen))
	return string(text)
}

// AppendText appends the ID's text to dst. It never fails.
func (id TraceID) AppendText(dst []byte) ([]byte, error) {
	if id == (TraceID{}) {
		return dst, nil
	}
	return hex.AppendEncode(dst, id[:]), nil
}

var traceIDForm = form[TraceID]{
	scheme: "trace_id",
	parse:  ParseTraceID,
	unpack: func(data []byte) (id TraceID, ok bool) {
		copy(id[:], data)
		return id, len(data) == len(id) && !id.IsZero()
	},
	bytes:    "16 bytes that are not all zero",
	optional: true,
}

// MarshalText returns the ID's text. It never fails.
func (id TraceID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (id *TraceID) UnmarshalText(text []byte) error { return traceIDForm.unmarshalText(id, text) }

// MarshalBinary returns the ID's 16 bytes, or none for the zero TraceID. It never fails.
func (id TraceID) MarshalBinary() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return id[:], nil
}

// UnmarshalBinary reads what MarshalBinary returned. The error is a [*ParseError].
func (id *TraceID) UnmarshalBinary(data []byte) error { return traceIDForm.unmarshalBinary(id, data) }

// Value returns the ID for database/sql, as its 32 digits, or NULL for the zero TraceID.
func (id TraceID) Value() (driver.Value, error) { return value(id) }

// Scan reads the ID from database/sql, as its 32 digits, its 16 bytes or NULL.
func (id *TraceID) Scan(src any) error { return traceIDForm.scan(id, src) }

func decodeTraceID(text string) (Decoded, error) {
	id, err := ParseTraceID(text)
	return decodedTrace(id), err
}

// decodedTrace shows a trace ID, and the UUIDv7 and the TXID that it may be.
func decodedTrace(id TraceID) Decoded {
	d := Decoded{Fields: map[string]any{"trace_id": id.String()}}
	if uuid, ok := id.UUIDv7(); ok {
		d.Time, d.Note = uuid.Time(), "one in 64 random trace IDs looks like a UUIDv7"
		d.Fields["uuid_v7"] = uuid.String()
		if txid, ok := uuid.TXID(); ok {
			d.Fields["txid"] = txid.String()
		}
	}
	return d
}
