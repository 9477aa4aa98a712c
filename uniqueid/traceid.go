package uniqueid

import "encoding/hex"

const traceIDTextLen = 32

// TraceID names a trace in W3C Trace Context: 128 bits, not all zero. Its text
// is 32 hexadecimal digits in lower case. The bits of a [UUIDv7] are a TraceID, so a [TXID]
// leads to its trace.
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

// String returns the ID's 32 digits.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// AppendText appends the ID's 32 digits to dst. It never fails.
func (id TraceID) AppendText(dst []byte) ([]byte, error) { return hex.AppendEncode(dst, id[:]), nil }

func decodeTraceID(text string) (Decoded, error) {
	id, err := ParseTraceID(text)
	return Decoded{Fields: Fields{{"trace_id", id.String()}}}, err
}
