package uniqueid

import (
	"bytes"
	"database/sql/driver"
	"encoding/hex"
)

const traceIDTextLen = 32

// TraceID names a trace in W3C Trace Context: 128 bits, not all zero. Its text
// is 32 hexadecimal digits in lower case.
//
// The bits of a [UUIDv7] are a TraceID, so a [TXID] leads to its trace.
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
	const scheme = "trace_id"
	if len(text) != traceIDTextLen {
		return TraceID{}, lengthError(scheme, text, "32 characters")
	}
	if err := parseHex(scheme, text, 0, id[:]); err != nil {
		return TraceID{}, err
	}
	if id.IsZero() {
		return TraceID{}, zerosError(scheme, text, -1, "trace ID")
	}
	return id, nil
}

// IsZero reports whether this is the zero value, which means none. It is written as an
// empty text, as no bytes and as NULL, and read back from these.
func (id TraceID) IsZero() bool { return id == TraceID{} }

// String returns the ID's 32 digits.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// AppendText appends the ID's 32 digits to dst. It never fails.
func (id TraceID) AppendText(dst []byte) ([]byte, error) { return hex.AppendEncode(dst, id[:]), nil }

var traceIDForm = form[TraceID]{
	scheme:   "trace_id",
	parse:    ParseTraceID,
	pack:     func(id TraceID) []byte { return id[:] },
	unpack:   unpackTraceID,
	sizes:    []int{16},
	size:     "16 bytes",
	optional: true,
}

func unpackTraceID(data []byte) (TraceID, error) {
	if TraceID(data).IsZero() {
		return TraceID{}, zerosError("trace_id", string(data), -1, "trace ID")
	}
	return TraceID(data), nil
}

// MarshalText returns the ID's 32 digits. It never fails.
func (id TraceID) MarshalText() ([]byte, error) { return traceIDForm.marshalText(id) }

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (id *TraceID) UnmarshalText(text []byte) error { return traceIDForm.unmarshalText(id, text) }

// MarshalBinary returns the ID's 16 bytes. It never fails.
func (id TraceID) MarshalBinary() ([]byte, error) { return traceIDForm.marshalBinary(id) }

// UnmarshalBinary reads what MarshalBinary returned. The error is a [*ParseError].
func (id *TraceID) UnmarshalBinary(data []byte) error { return traceIDForm.unmarshalBinary(id, data) }

// Value returns the ID for database/sql, as its 32 digits.
func (id TraceID) Value() (driver.Value, error) { return traceIDForm.value(id) }

// Scan reads the ID from database/sql, as its 32 digits or its 16 bytes. NULL is the zero
// value.
func (id *TraceID) Scan(src any) error { return traceIDForm.scan(id, src) }

// Compare orders as bytes and texts do. It is the order of time if the IDs are
// UUIDv7s.
func (id TraceID) Compare(other TraceID) int { return bytes.Compare(id[:], other[:]) }

func decodeTraceID(text string) (Decoded, error) {
	id, err := ParseTraceID(text)
	return Decoded{Fields: []Field{{"trace_id", id.String()}}}, err
}
