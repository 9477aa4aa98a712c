package uniqueid

import (
	"bytes"
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

const (
	uuidTextLen = 36
	// uuidMoreBits is how many random bits a UUIDv7 has beyond those of a TXID.
	uuidMoreBits = 20
	uuidVersion  = 7
	uuidVariant  = 2 // 10 in binary: RFC 9562 and its forerunners
)

var uuidv7Kind = Kind{
	Scheme:     "uuid_v7",
	New:        standalone(NewUUIDv7),
	characters: "36",
	readings: []reading{
		{uuidTextLen, uuidTextLen, 16, decodeUUIDv7},
		{traceIDTextLen, traceIDTextLen, 16, decodeBareUUIDv7},
	},
}

// UUIDv7 is a UUID of version 7 as RFC 9562 describes it: 128 bits that sort by
// time, as bytes and as text.
//
//	 0                   48      52            64    66             108      128
//	+-------------------+-------+-------------+-----+--------------+--------+
//	| milliseconds, 1970| ver 7 |  random 12  |var 2|  random 42   | more 20|
//	+-------------------+-------+-------------+-----+--------------+--------+
//	                             \____________ 54 bits ___________/
//
// A UUIDv7 is a [TXID] in another notation: the same millisecond, the same 54 random
// bits in the same order, and 20 more random bits. UUIDs sort as their TXIDs do. The
// text is 8-4-4-4-12 hexadecimal digits in lower case; the TXID determines all but the
// last 5.
//
// A UUIDv7 from another program can be read as well. If its time is after the year
// 2109, it has no TXID.
//
// The zero UUIDv7 is not a UUID of version 7. RFC 9562 calls it the nil UUID.
type UUIDv7 [16]byte

// UUIDv7 returns the TXID as a UUIDv7, with the low 20 bits of more. Take them from a
// source of randomness, or 0 and 1<<20-1 for the first and the last UUIDv7 of the TXID.
func (id TXID) UUIDv7(more uint32) UUIDv7 {
	high, low := id.words()
	return packUUIDv7(high, low, more)
}

// packUUIDv7 splits a TXID's 42 bits of milliseconds and 54 random bits.
func packUUIDv7(high uint64, low, more uint32) (id UUIDv7) {
	millis := high >> txidGrowingBits
	first12 := high >> (txidGrowingBits - 12) & (1<<12 - 1)
	next42 := high&(1<<10-1)<<32 | uint64(low)
	binary.BigEndian.PutUint64(id[:8], millis<<16|uuidVersion<<12|first12)
	binary.BigEndian.PutUint64(id[8:], uuidVariant<<62|next42<<uuidMoreBits|uint64(more)&(1<<uuidMoreBits-1))
	return id
}

// TXID returns the UUIDv7 as a TXID, without its last 20 bits. The result is false if
// the UUID is not of version 7. It is also false if its time is after the year 2109,
// which a TXID cannot hold.
func (id UUIDv7) TXID() (TXID, bool) {
	high, low := id.words()
	millis := high >> 16
	if !id.isVersion7() || millis>>42 != 0 {
		return TXID{}, false
	}
	next42 := low >> uuidMoreBits & (1<<42 - 1)
	return packTXID(millis<<txidGrowingBits|high&(1<<12-1)<<10|next42>>32, uint32(next42)), true
}

func (id *UUIDv7) words() (high, low uint64) {
	return binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
}

func (id *UUIDv7) isVersion7() bool { return id[6]>>4 == uuidVersion && id[8]>>6 == uuidVariant }

// ParseUUIDv7 reads the 36 characters of a UUIDv7. They must be in lower case. The
// error is a [*ParseError].
func ParseUUIDv7(text string) (id UUIDv7, err error) {
	const scheme = "uuid_v7"
	if len(text) != uuidTextLen {
		return UUIDv7{}, lengthError(scheme, text, "36 characters")
	}
	at := 0
	for i := range id {
		if at == 8 || at == 13 || at == 18 || at == 23 {
			if text[at] != '-' {
				return UUIDv7{}, characterError(scheme, text, at, "-")
			}
			at++
		}
		if id[i], err = parseHexByte(scheme, text, at); err != nil {
			return UUIDv7{}, err
		}
		at += 2
	}
	if id[6]>>4 != uuidVersion {
		return UUIDv7{}, characterError(scheme, text, 14, "7, the version")
	}
	if id[8]>>6 != uuidVariant {
		return UUIDv7{}, characterError(scheme, text, 19, "8, 9, a or b, the variant")
	}
	return id, nil
}

// Time returns when the ID was made, in UTC, to the millisecond. The field has 48 bits:
// it overflows in the year 10889.
func (id UUIDv7) Time() time.Time {
	high, _ := id.words()
	return time.UnixMilli(int64(high >> 16)).UTC()
}

// Random returns the first 54 random bits: those of the TXID.
func (id UUIDv7) Random() uint64 {
	high, low := id.words()
	return high&(1<<12-1)<<42 | low>>uuidMoreBits&(1<<42-1)
}

// More returns the last 20 random bits, which the TXID does not have.
func (id UUIDv7) More() uint32 {
	_, low := id.words()
	return uint32(low & (1<<uuidMoreBits - 1))
}

// Compare returns -1 if id was made before other, +1 if after, 0 if they are equal.
// Within a millisecond, the order between processes has no meaning. Texts compare the
// same way.
func (id UUIDv7) Compare(other UUIDv7) int { return bytes.Compare(id[:], other[:]) }

// IsZero reports whether this is the zero value, which means none. It is written as an
// empty text, as no bytes and as NULL, and read back from these.
func (id UUIDv7) IsZero() bool { return id == UUIDv7{} }

// String returns the ID's 36 characters.
func (id UUIDv7) String() string {
	var text [uuidTextLen]byte
	putUUID(&text, &id)
	return string(text[:])
}

// AppendText appends the ID's 36 characters to dst. It never fails.
func (id UUIDv7) AppendText(dst []byte) ([]byte, error) { return appendUUID(dst, &id), nil }

// MarshalText returns the ID's 36 characters. It never fails.
func (id UUIDv7) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return id.AppendText(nil)
}

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (id *UUIDv7) UnmarshalText(text []byte) error {
	return assignOrZero(id, ParseUUIDv7, string(text))
}

// MarshalBinary returns the ID's 16 bytes. It never fails.
func (id UUIDv7) MarshalBinary() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return bytes.Clone(id[:]), nil
}

// UnmarshalBinary reads the 16 bytes that MarshalBinary returned. The error is a
// [*ParseError].
func (id *UUIDv7) UnmarshalBinary(data []byte) error {
	if len(data) == 0 {
		*id = UUIDv7{}
		return nil
	}
	if len(data) != len(id) {
		return binaryLengthError("uuid_v7", data, "16 bytes")
	}
	read := UUIDv7(data)
	if !read.isVersion7() {
		return &ParseError{"uuid_v7", string(data), 6, "version 7 and variant 10 in binary", hex.EncodeToString(data[6:9])}
	}
	*id = read
	return nil
}

// Value returns the ID for database/sql, as its 36 characters, which a column of
// PostgreSQL's type uuid takes.
func (id UUIDv7) Value() (driver.Value, error) {
	return valueOrNull(id)
}

// Scan reads the ID from database/sql, as its 36 characters or its 16 bytes.
// NULL is the zero value.
func (id *UUIDv7) Scan(src any) error {
	return scanOrZero("uuid_v7", src, id, len(id))
}

func appendUUID(dst []byte, id *UUIDv7) []byte {
	n := len(dst)
	dst = slices.Grow(dst, uuidTextLen)[:n+uuidTextLen]
	putUUID((*[uuidTextLen]byte)(dst[n:]), id)
	return dst
}

func putUUID(text *[uuidTextLen]byte, id *UUIDv7) {
	putHex(text[0:8], id[0:4])
	putHex(text[9:13], id[4:6])
	putHex(text[14:18], id[6:8])
	putHex(text[19:23], id[8:10])
	putHex(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
}

// maybeUUIDv7 is the note on a trace ID that may be a UUIDv7 by chance.
const maybeUUIDv7 = "one in 64 random trace IDs looks like a UUIDv7"

func decodeUUIDv7(text string) (Decoded, error) {
	id, err := ParseUUIDv7(text)
	if err != nil {
		return Decoded{}, err
	}
	return uuidReading(id), nil
}

func uuidReading(id UUIDv7) Decoded {
	fields := []Field{{"random", fmt.Sprintf("%014x", id.Random())}, {"more", fmt.Sprintf("%05x", id.More())}}
	if txid, ok := id.TXID(); ok {
		fields = append(fields, Field{"txid", txid.String()})
	}
	return Decoded{Time: id.Time(), Fields: append(fields, Field{"trace_id", id.TraceID().String()})}
}

// decodeBareUUIDv7 parses a UUIDv7 without hyphens, in the form of a trace ID.
func decodeBareUUIDv7(text string) (Decoded, error) {
	trace, err := ParseTraceID(text)
	if err != nil {
		return Decoded{}, err
	}
	id, ok := trace.UUIDv7()
	if !ok {
		return Decoded{}, &ParseError{"uuid_v7", text, -1, "version 7 and variant 10 in binary", text[12:16] + "-" + text[16:20]}
	}
	reading := uuidReading(id)
	reading.Fields = append([]Field{{"uuid_v7", id.String()}}, reading.Fields...)
	reading.Note = maybeUUIDv7
	return reading, nil
}
