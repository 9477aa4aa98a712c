package uniqueid

import (
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	traceIDTextLen = 32
	// traceparentLen is the length of version 00, the only existing one.
	traceparentLen = 55
)

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
	scheme:   "trace_id",
	parse:    ParseTraceID,
	unpack:   unpackTraceID,
	sizes:    []int{16},
	size:     "16 bytes",
	optional: true,
}

func unpackTraceID(data []byte) (TraceID, error) {
	id := TraceID(data)
	if id.IsZero() {
		return id, &ParseError{"trace_id", string(data), -1, "a trace ID that is not zero", "zeros"}
	}
	return id, nil
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
	return Decoded{Fields: Fields{{"trace_id", id.String()}}}, err
}

// The flags of a TraceContext. Others have no meaning yet.
const (
	// TraceSampled says that the caller may have recorded the request. Most tracers
	// follow it when they decide whether to record the request themselves.
	TraceSampled byte = 1 << 0
	// TraceRandom says that the last 56 bits of the trace ID are random, so that
	// a sampler can decide by them.
	TraceRandom byte = 1 << 1
)

// TraceContext is the header field traceparent of W3C Trace Context, version 00. It names
// the trace that a request belongs to, and the part of it that called. Neither the trace ID
// nor the parent ID is zero. The zero TraceContext means none.
type TraceContext struct {
	// TraceID is the ID of the trace that the request belongs to.
	TraceID TraceID
	// ParentID is the ID of the part of the trace that called.
	ParentID [8]byte
	// Flags are [TraceSampled], [TraceRandom], and any flags without a meaning.
	Flags byte
}

// NewTraceContext begins the trace of a UUIDv7, whose bits are the trace ID. The parent
// ID is random and not zero, and the flags are [TraceSampled] and [TraceRandom]. The last
// 56 bits of a UUIDv7 that this package made are random, as TraceRandom requires. For a
// UUIDv7 from elsewhere, remove TraceRandom from the Flags. The zero UUIDv7 begins no trace:
// the TraceContext is none.
func NewTraceContext(id UUIDv7) TraceContext {
	return TraceContext{id.TraceID(), randomParent(), TraceSampled | TraceRandom}
}

// Child returns the same trace with a parent ID that is random and not zero. A program
// that takes part in a trace sends that on. Flags without a meaning are cleared, as the
// standard requires.
func (c TraceContext) Child() TraceContext {
	return TraceContext{c.TraceID, randomParent(), c.Flags & (TraceSampled | TraceRandom)}
}

// ParseTraceContext reads the header field traceparent as a receiver must. Of a future
// version, 01 to fe, it reads the part that version 00 defines; a hyphen must separate
// what follows. The error is a [*ParseError].
func ParseTraceContext(text string) (c TraceContext, err error) {
	r := reader{scheme: "traceparent", text: text}
	r.length(len(text) == traceparentLen || len(text) > traceparentLen && !strings.HasPrefix(text, "00"),
		"55 characters: version, trace ID, parent ID and flags")
	if len(text) > traceparentLen {
		r.hyphens(traceparentLen)
	}
	if strings.HasPrefix(text, "ff") {
		r.fail(0, "a version from 00 to fe", `"ff"`)
	}
	r.hyphens(2, 35, 52)
	r.digits(0, 2, hexDigits, hexWant) // the version
	r.hex(3, c.TraceID[:])
	r.hex(36, c.ParentID[:])
	c.Flags = byte(r.digits(53, traceparentLen, hexDigits, hexWant))
	if c.TraceID.IsZero() {
		r.fail(3, "a trace ID that is not zero", "zeros")
	}
	if c.ParentID == ([8]byte{}) {
		r.fail(36, "a parent ID that is not zero", "zeros")
	}
	return result(r, c)
}

// IsZero reports whether there is no trace ID, which means none: an empty text.
func (c TraceContext) IsZero() bool { return c.TraceID.IsZero() }

// String returns the field's 55 characters, or nothing for the zero TraceContext.
func (c TraceContext) String() string {
	text, _ := c.AppendText(make([]byte, 0, traceparentLen))
	return string(text)
}

// AppendText appends the field's text to dst. It never fails.
func (c TraceContext) AppendText(dst []byte) ([]byte, error) {
	if c.IsZero() {
		return dst, nil
	}
	text := [traceparentLen]byte{0: '0', 1: '0', 2: '-', 35: '-', 52: '-'}
	hex.Encode(text[3:], c.TraceID[:])
	hex.Encode(text[36:], c.ParentID[:])
	hex.Encode(text[53:], []byte{c.Flags})
	return append(dst, text[:]...), nil
}

var traceparentForm = form[TraceContext]{scheme: "traceparent", parse: ParseTraceContext, optional: true}

// MarshalText returns the field's text. It never fails.
func (c TraceContext) MarshalText() ([]byte, error) { return c.AppendText(nil) }

// Value returns the text for database/sql, or NULL for the zero TraceContext.
func (c TraceContext) Value() (driver.Value, error) { return value(c) }

// Scan reads the text, or NULL, from database/sql.
func (c *TraceContext) Scan(src any) error { return traceparentForm.scan(c, src) }

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (c *TraceContext) UnmarshalText(text []byte) error {
	return traceparentForm.unmarshalText(c, text)
}

func decodeTraceparent(text string) (Decoded, error) {
	c, err := ParseTraceContext(text)
	if err != nil {
		return Decoded{}, err
	}
	reading := Decoded{Fields: Fields{
		{"version", text[:2]},
		{"trace_id", c.TraceID.String()},
		{"parent_id", hex.EncodeToString(c.ParentID[:])},
		{"flags", fmt.Sprintf("%02x", c.Flags)},
		{"sampled", yesNo[c.Flags&TraceSampled != 0]},
		{"random_trace_id", yesNo[c.Flags&TraceRandom != 0]},
	}}
	if id, ok := c.TraceID.UUIDv7(); ok {
		reading.Time, reading.Note = id.Time(), maybeUUIDv7
		reading.Fields = append(reading.Fields, Field{"uuid_v7", id.String()})
		if txid, ok := id.TXID(); ok {
			reading.Fields = append(reading.Fields, Field{"txid", txid.String()})
		}
	}
	return reading, nil
}

var yesNo = map[bool]string{true: "yes", false: "no"}

func randomParent() (parent [8]byte) {
	for parent == [8]byte{} {
		binary.LittleEndian.PutUint64(parent[:], rand.Uint64())
	}
	return parent
}
