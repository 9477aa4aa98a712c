package uniqueid

import (
	"bytes"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

const (
	txidTextLen    = 20
	txidRandomBits = 54
	txidAlphabet   = "0123456789abcdefghijklmnopqrstuv"
)

// TXID is a transaction ID as the nginx module ngx_txid describes it: 96 bits
// that sort by time, as bytes and as text. The text is 20 characters of base32hex in lower
// case (RFC 4648, "extended hex"). The last one carries one bit of the ID and four zero
// bits, so it is 0 or g. The zero TXID is valid: the first ID of 1970.
type TXID [12]byte

// MakeTXID makes a TXID from its fields: the milliseconds of t since 1970, and the low
// 54 bits of random. A time before 1970 or after the year 2109, which 42 bits cannot
// hold, is taken modulo 2^42 milliseconds.
func MakeTXID(t time.Time, random uint64) TXID {
	random &= 1<<txidRandomBits - 1
	return packTXID(uint64(t.UnixMilli())<<22|random>>32, uint32(random))
}

func packTXID(high uint64, low uint32) (id TXID) {
	binary.BigEndian.PutUint64(id[:8], high)
	binary.BigEndian.PutUint32(id[8:], low)
	return id
}

func (id *TXID) words() (high uint64, low uint32) {
	return binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint32(id[8:])
}

// ParseTXID reads the 20 characters of a TXID. The error is a [*ParseError].
func ParseTXID(text string) (TXID, error) {
	r := reader{scheme: "txid", text: text}
	r.length(len(text) == txidTextLen, "20 characters")
	const want = "one of 0-9a-v (lower-case base32hex)"
	first60 := r.digits(0, 12, txidAlphabet, want)
	next40 := r.digits(12, txidTextLen, txidAlphabet, want)
	r.character(next40&0xf == 0, 19, "0 or g, whose last 4 bits are zero")
	return result(r, packTXID(first60<<4|next40>>36, uint32(next40>>4)))
}

// Time returns when the ID was made, in UTC, to the millisecond.
func (id TXID) Time() time.Time {
	high, _ := id.words()
	return time.UnixMilli(int64(high >> 22)).UTC()
}

// Random returns the 54 bits after the time. They have no meaning to a reader.
func (id TXID) Random() uint64 {
	high, low := id.words()
	return high&(1<<22-1)<<32 | uint64(low)
}

// Compare returns -1, 0 or 1, by the order of times, which is that of texts and bytes.
func (id TXID) Compare(other TXID) int { return bytes.Compare(id[:], other[:]) }

// String returns the ID's 20 characters.
func (id TXID) String() string {
	text, _ := id.AppendText(make([]byte, 0, txidTextLen))
	return string(text)
}

// AppendText appends the ID's 20 characters to dst. It never fails.
func (id TXID) AppendText(dst []byte) ([]byte, error) {
	// Two characters at a time: twelve of the high word, and the rest of its last four bits, the
	// low word, and four zero bits.
	high, low := id.words()
	n := len(dst)
	dst = slices.Grow(dst, txidTextLen)[:n+txidTextLen]
	text := (*[txidTextLen]byte)(dst[n:])
	const ten = 1<<10 - 1
	pairs := &txidPairs
	binary.LittleEndian.PutUint16(text[0:], pairs[high>>54])
	binary.LittleEndian.PutUint16(text[2:], pairs[high>>44&ten])
	binary.LittleEndian.PutUint16(text[4:], pairs[high>>34&ten])
	binary.LittleEndian.PutUint16(text[6:], pairs[high>>24&ten])
	binary.LittleEndian.PutUint16(text[8:], pairs[high>>14&ten])
	binary.LittleEndian.PutUint16(text[10:], pairs[high>>4&ten])
	rest := high<<36 | uint64(low)<<4
	binary.LittleEndian.PutUint16(text[12:], pairs[rest>>30&ten])
	binary.LittleEndian.PutUint16(text[14:], pairs[rest>>20&ten])
	binary.LittleEndian.PutUint16(text[16:], pairs[rest>>10&ten])
	binary.LittleEndian.PutUint16(text[18:], pairs[rest&ten])
	return dst, nil
}

var txidForm = form[TXID]{
	scheme: "txid",
	parse:  ParseTXID,
	unpack: func(data []byte) (id TXID, ok bool) {
		copy(id[:], data)
		return id, len(data) == len(id)
	},
	bytes: "12 bytes",
}

// MarshalText returns the ID's 20 characters. It never fails.
func (id TXID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (id *TXID) UnmarshalText(text []byte) error { return txidForm.unmarshalText(id, text) }

// MarshalBinary returns the ID's 12 bytes. It never fails.
func (id TXID) MarshalBinary() ([]byte, error) { return id[:], nil }

// UnmarshalBinary reads what MarshalBinary returned. The error is a [*ParseError].
func (id *TXID) UnmarshalBinary(data []byte) error { return txidForm.unmarshalBinary(id, data) }

// Value returns the ID for database/sql, as its 20 characters.
func (id TXID) Value() (driver.Value, error) { return value(id) }

// Scan reads the ID from database/sql, as its 20 characters or its 12 bytes. Where a column
// may be NULL, use sql.Null[TXID].
func (id *TXID) Scan(src any) error { return txidForm.scan(id, src) }

// txidPairs are the texts of ten bits: two characters, the first in the low byte.
var txidPairs = func() (pairs [1 << 10]uint16) {
	for i := range pairs {
		pairs[i] = uint16(txidAlphabet[i>>5]) | uint16(txidAlphabet[i&31])<<8
	}
	return pairs
}()

func decodeTXID(text string) (Decoded, error) {
	id, err := ParseTXID(text)
	return Decoded{Time: id.Time(), Fields: map[string]any{
		"random":        fmt.Sprintf("%014x", id.Random()),
		"uuid_v7_first": id.UUIDv7(0).String(),
		"uuid_v7_last":  id.UUIDv7(1<<uuidMoreBits - 1).String(),
	}}, err
}
