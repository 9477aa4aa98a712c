package uniqueid

import (
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
)

// traceparentLen is the length of version 00, the only existing one.
const traceparentLen = 55

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
	traceID TraceID
	parent  [8]byte
	flags   byte
}

// NewTraceContext begins the trace of a UUIDv7, whose bits are the trace ID. The parent
// ID is random and not zero, and the flags are [TraceSampled] and [TraceRandom]. The last
// 56 bits of a UUIDv7 that this package made are random, as TraceRandom requires. For a
// UUIDv7 from elsewhere, remove TraceRandom with [TraceContext.WithFlags]. The zero UUIDv7
// begins no trace: the TraceContext is none.
func NewTraceContext(id UUIDv7) TraceContext {
	return TraceContext{id.TraceID(), randomParent(), TraceSampled | TraceRandom}
}

// Child returns the same trace with a parent ID that is random and not zero. A program
// that takes part in a trace sends that on. Flags without a meaning are cleared, as the
// standard requires.
func (c TraceContext) Child() TraceContext {
	return TraceContext{c.traceID, randomParent(), c.flags & (TraceSampled | TraceRandom)}
}

// WithFlags returns the same trace and parent ID with other flags.
func (c TraceContext) WithFlags(flags byte) TraceContext {
	c.flags = flags
	return c
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
	var version, flags [1]byte
	r.hyphens(2, 35, 52)
	r.hex(0, version[:])
	r.hex(3, c.traceID[:])
	r.hex(36, c.parent[:])
	r.hex(53, flags[:])
	if c.traceID.IsZero() {
		r.fail(3, "a trace ID that is not zero", "zeros")
	}
	if c.parent == ([8]byte{}) {
		r.fail(36, "a parent ID that is not zero", "zeros")
	}
	c.flags = flags[0]
	return result(r, c)
}

// TraceID returns the ID of the trace that the request belongs to.
func (c TraceContext) TraceID() TraceID { return c.traceID }

// ParentID returns the ID of the part of the trace that called.
func (c TraceContext) ParentID() [8]byte { return c.parent }

// Flags returns [TraceSampled], [TraceRandom], and any flags without a meaning.
func (c TraceContext) Flags() byte { return c.flags }

// IsZero reports whether there is no trace ID, which means none: an empty text.
func (c TraceContext) IsZero() bool { return c.traceID.IsZero() }

// String returns the field's 55 characters, or nothing for the zero TraceContext.
func (c TraceContext) String() string {
	text, _ := c.AppendText(make([]byte, 0, traceparentLen))
	return string(text)
}

// AppendText appends the field's text to dst. It never fails.
func (c TraceContext) AppendText(dst []byte) ([]byte, error) {
	if c.traceID == (TraceID{}) {
		return dst, nil
	}
	text := [traceparentLen]byte{0: '0', 1: '0', 2: '-', 35: '-', 52: '-'}
	hex.Encode(text[3:], c.traceID[:])
	hex.Encode(text[36:], c.parent[:])
	hex.Encode(text[53:], []byte{c.flags})
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
	parent, d := c.ParentID(), decodedTrace(c.TraceID())
	d.Fields["version"], d.Fields["parent_id"] = text[:2], hex.EncodeToString(parent[:])
	d.Fields["flags"] = fmt.Sprintf("%02x", c.Flags())
	return d, nil
}

func randomParent() (parent [8]byte) {
	for parent == [8]byte{} {
		binary.LittleEndian.PutUint64(parent[:], rand.Uint64())
	}
	return parent
}
