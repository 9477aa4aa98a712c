package uniqueid

import (
	"bytes"
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

const (
	uuidTextLen = 36
	// uuidMoreBits is how many random bits a UUIDv7 has beyond those of a TXID.
	uuidMoreBits = 20
	uuidVersion  = 7
	uuidVariant  = 2 // 10 in binary: RFC 9562 and its forerunners
)

// UUIDv7 is a UUID of version 7 as RFC 9562 describes it: 128 bits that sort by
// time, as bytes and as text.
//
// A UUIDv7 is a [TXID] in another notation: the same millisecond, the same 54 random
// bits in the same order, and 20 more random bits. UUIDs sort as their TXIDs do. The
// text is 8-4-4-4-12 hexadecimal digits in lower case; the TXID determines all but the
// last 5.
//
// A UUIDv7 from another program can be read as well. If its time is after the year
// 2109, it has no TXID. The zero UUIDv7 means none. The nil UUID of RFC 9562, which is
// written as zeros, is not of version 7 and is refused.
type UUIDv7 [16]byte

// UUIDv7 returns the TXID as a UUIDv7, with the low 20 bits of more. Take them from a
// source of randomness, or 0 and 1<<20-1 for the first and the last UUIDv7 of the TXID.
func (id TXID) UUIDv7(more uint32) (uuid UUIDv7) {
	high, low := id.words()
	millis := high >> txidGrowingBits
	first12 := high >> (txidGrowingBits - 12) & (1<<12 - 1)
	next42 := high&(1<<10-1)<<32 | uint64(low)
	binary.BigEndian.PutUint64(uuid[:8], millis<<16|uuidVersion<<12|first12)
	binary.BigEndian.PutUint64(uuid[8:], uuidVariant<<62|next42<<uuidMoreBits|uint64(more)&(1<<uuidMoreBits-1))
	return uuid
}

// TXID returns the UUIDv7 as a TXID, without its last 20 bits. The result is false if
// the UUID is not of version 7. It is also false if its time is after the year 2109,
// which a TXID cannot hold.
func (id UUIDv7) TXID() (TXID, bool) {
	if !id.isVersion7() || id.millis()>>42 != 0 {
		return TXID{}, false
	}
	return MakeTXID(id.Time(), id.Random()), true
}

func (id *UUIDv7) millis() uint64 { return binary.BigEndian.Uint64(id[:8]) >> 16 }

func (id *UUIDv7) isVersion7() bool { return id[6]>>4 == uuidVersion && id[8]>>6 == uuidVariant }

// uuidGroups are the groups of digits: the offset in the text, and the bytes.
var uuidGroups = [...]struct{ at, from, to int }{{0, 0, 4}, {9, 4, 6}, {14, 6, 8}, {19, 8, 10}, {24, 10, 16}}

// ParseUUIDv7 reads the 36 characters of a UUIDv7, in lower or upper case. The error is a
// [*ParseError].
func ParseUUIDv7(text string) (id UUIDv7, err error) {
	r := reader{scheme: "uuid_v7", text: text, anyCase: true}
	r.length(len(text) == uuidTextLen, "36 characters")
	r.hyphens(8, 13, 18, 23)
	for _, group := range uuidGroups {
		r.hex(group.at, id[group.from:group.to])
	}
	r.character(id[6]>>4 == uuidVersion, 14, "7, the version")
	r.character(id[8]>>6 == uuidVariant, 19, "8, 9, a or b, the variant")
	return result(r, id)
}

// Time returns when the ID was made, in UTC, to the millisecond. The field has 48 bits:
// it overflows in the year 10889.
func (id UUIDv7) Time() time.Time { return time.UnixMilli(int64(id.millis())).UTC() }

// Random returns the first 54 random bits: those of the TXID.
func (id UUIDv7) Random() uint64 {
	high, low := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	return high&(1<<12-1)<<42 | low>>uuidMoreBits&(1<<42-1)
}

// More returns the last 20 random bits, which the TXID does not have.
func (id UUIDv7) More() uint32 { return binary.BigEndian.Uint32(id[12:]) & (1<<uuidMoreBits - 1) }

// Compare returns -1, 0 or 1, by the order of times, which is that of texts and bytes.
func (id UUIDv7) Compare(other UUIDv7) int { return bytes.Compare(id[:], other[:]) }

// IsZero reports whether this is the zero value, which means none.
func (id UUIDv7) IsZero() bool { return id == UUIDv7{} }

// String returns the ID's 36 characters, or nothing for the zero UUIDv7.
func (id UUIDv7) String() string {
	text, _ := id.AppendText(make([]byte, 0, uuidTextLen))
	return string(text)
}

// AppendText appends the ID's text to dst. It never fails.
func (id UUIDv7) AppendText(dst []byte) ([]byte, error) {
	if id == (UUIDv7{}) {
		return dst, nil
	}
	text := [uuidTextLen]byte{8: '-', 13: '-', 18: '-', 23: '-'}
	for _, group := range uuidGroups {
		hex.Encode(text[group.at:], id[group.from:group.to])
	}
	return append(dst, text[:]...), nil
}

var uuidv7Form = form[UUIDv7]{
	scheme: "uuid_v7",
	parse:  ParseUUIDv7,
	unpack: func(data []byte) (id UUIDv7, ok bool) {
		copy(id[:], data)
		return id, len(data) == len(id) && id.isVersion7()
	},
	bytes:    "16 bytes of version 7 and variant 10 in binary",
	optional: true,
}

// MarshalText returns the ID's text. It never fails.
func (id UUIDv7) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (id *UUIDv7) UnmarshalText(text []byte) error { return uuidv7Form.unmarshalText(id, text) }

// MarshalBinary returns the ID's 16 bytes, or none for the zero UUIDv7. It never fails.
func (id UUIDv7) MarshalBinary() ([]byte, error) { return TraceID(id).MarshalBinary() }

// UnmarshalBinary reads what MarshalBinary returned. The error is a [*ParseError].
func (id *UUIDv7) UnmarshalBinary(data []byte) error { return uuidv7Form.unmarshalBinary(id, data) }

// Value returns the ID for database/sql, as its 36 characters, or NULL for the zero UUIDv7.
func (id UUIDv7) Value() (driver.Value, error) { return value(id) }

// Scan reads the ID from database/sql, as its 36 characters, its 16 bytes or NULL.
func (id *UUIDv7) Scan(src any) error { return uuidv7Form.scan(id, src) }

func decodeUUIDv7(text string) (Decoded, error) {
	id, err := ParseUUIDv7(text)
	fields := map[string]any{"random": fmt.Sprintf("%014x", id.Random()), "more": fmt.Sprintf("%05x", id.More()), "trace_id": id.TraceID().String()}
	if txid, ok := id.TXID(); ok {
		fields["txid"] = txid.String()
	}
	return Decoded{Time: id.Time(), Fields: fields}, err
}

// NewUUIDv7 makes a UUIDv7 with the process's own generator, the one of
// [NewTXID].
func NewUUIDv7() UUIDv7 { return processTXIDs().NewUUIDv7() }

// NewUUIDv7 makes a UUIDv7: a TXID as New makes it, and 20 random bits of the same source.
func (g *TXIDGenerator) NewUUIDv7() UUIDv7 {
	id, more := g.next()
	return id.UUIDv7(more)
}
