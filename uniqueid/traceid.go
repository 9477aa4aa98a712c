package uniqueid

import (
	"bytes"
	"database/sql/driver"
	"encoding/hex"
	"slices"
)

const traceIDTextLen = 32

var traceIDKind = Kind{
	Scheme:     "trace_id",
	characters: "32",
	readings:   []reading{{traceIDTextLen, traceIDTextLen, 16, decodeTraceID}},
}

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
	if id == (TraceID{}) {
		return TraceID{}, &ParseError{scheme, text, -1, "a trace ID that is not zero", "zeros"}
	}
	return id, nil
}

// IsZero reports whether this is the zero value, which means none. It is written as an
// empty text, as no bytes and as NULL, and read back from these.
func (id TraceID) IsZero() bool { return id == TraceID{} }

// String returns the ID's 32 digits.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// AppendText appends the ID's 32 digits to dst. It never fails.
func (id TraceID) AppendText(dst []byte) ([]byte, error) {
	n := len(dst)
	dst = slices.Grow(dst, traceIDTextLen)[:n+traceIDTextLen]
	putHex(dst[n:], id[:])
	return dst, nil
}

// MarshalText returns the ID's 32 digits. It never fails.
func (id TraceID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return id.AppendText(nil)
}

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (id *TraceID) UnmarshalText(text []byte) error {
	return assignOrZero(id, ParseTraceID, string(text))
}

// MarshalBinary returns the ID's 16 bytes. It never fails.
func (id TraceID) MarshalBinary() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return bytes.Clone(id[:]), nil
}

// UnmarshalBinary reads the 16 bytes that MarshalBinary returned. The error is a
// [*ParseError].
func (id *TraceID) UnmarshalBinary(data []byte) error {
	if len(data) == 0 {
		*id = TraceID{}
		return nil
	}
	if len(data) != len(id) {
		return binaryLengthError("trace_id", data, "16 bytes")
	}
	if TraceID(data) == (TraceID{}) {
		return &ParseError{"trace_id", string(data), -1, "a trace ID that is not zero", "zeros"}
	}
	copy(id[:], data)
	return nil
}

// Value returns the ID for database/sql, as its 32 digits.
func (id TraceID) Value() (driver.Value, error) {
	return valueOrNull(id)
}

// Scan reads the ID from database/sql, as its 32 digits or its 16 bytes. Where a
// column may be NULL, use sql.Null[TraceID].
func (id *TraceID) Scan(src any) error {
	return scanOrZero("trace_id", src, id, len(id))
}

// Compare orders as bytes and texts do. It is the order of time if the IDs are
// UUIDv7s.
func (id TraceID) Compare(other TraceID) int { return bytes.Compare(id[:], other[:]) }

func decodeTraceID(text string) (Decoded, error) {
	id, err := ParseTraceID(text)
	return Decoded{Fields: []Field{{"trace_id", id.String()}}}, err
}
