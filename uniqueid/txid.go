package uniqueid

import (
	"bytes"
	"database/sql/driver"
	"encoding/binary"
	"slices"
	"time"
)

const (
	txidTextLen    = 20
	txidRandomBits = 54
	txidAlphabet   = "0123456789abcdefghijklmnopqrstuv"
)

// TXID is a transaction ID as the nginx module ngx_txid describes it: 96 bits
// that sort by time, as bytes and as text.
//
//	 0                   42                                    96
//	+--------------------+--------------------------------------+
//	| milliseconds, 1970 |                random                |
//	+--------------------+--------------------------------------+
//
// The text is base32hex in lower case (RFC 4648, "extended hex"), without
// padding characters: 20 characters, of which the last carries one bit of the
// ID and four zero bits, and is therefore 0 or g.
//
// The zero TXID is valid: it is the first ID of 1970.
type TXID [12]byte

// MakeTXID puts a TXID together from its fields. Of t the milliseconds since
// 1970 count, of random the low 54 bits. A time before 1970 or after the year
// 2109, which 42 bits cannot hold, is taken modulo 2^42 milliseconds.
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
	if len(text) != txidTextLen {
		return TXID{}, lengthError("txid", text, "20 characters")
	}
	var digits [txidTextLen]uint64
	for i := range len(text) {
		digit := txidDigit(text[i])
		if digit < 0 {
			return TXID{}, characterError("txid", text, i, "one of 0-9a-v (lower-case base32hex)")
		}
		digits[i] = uint64(digit)
	}
	if digits[19]&0xf != 0 {
		return TXID{}, characterError("txid", text, 19, "0 or g, whose last 4 bits are zero")
	}
	var high uint64
	for _, digit := range digits[:12] {
		high = high<<5 | digit
	}
	high = high<<4 | digits[12]>>1
	low := digits[12] & 1
	for _, digit := range digits[13:19] {
		low = low<<5 | digit
	}
	return packTXID(high, uint32(low<<1|digits[19]>>4)), nil
}

func txidDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'v':
		return int(c-'a') + 10
	}
	return -1
}

// Time is when the ID was made, in UTC, to the millisecond.
func (id TXID) Time() time.Time {
	high, _ := id.words()
	return time.UnixMilli(int64(high >> 22)).UTC()
}

// Random is the 54 bits after the time. They tell a reader nothing.
func (id TXID) Random() uint64 {
	high, low := id.words()
	return high&(1<<22-1)<<32 | uint64(low)
}

// Compare is -1 if id was made before other, +1 if after, 0 if they are equal.
// Within a millisecond of different processes the order has no meaning. Texts
// compare the same way.
func (id TXID) Compare(other TXID) int { return bytes.Compare(id[:], other[:]) }

// String is the ID's 20 characters.
func (id TXID) String() string {
	var text [txidTextLen]byte
	high, low := id.words()
	putTXID(&text, high, low)
	return string(text[:])
}

// AppendText appends the ID's 20 characters to dst. It never fails.
func (id TXID) AppendText(dst []byte) ([]byte, error) {
	high, low := id.words()
	return appendTXID(dst, high, low), nil
}

// MarshalText is the ID's 20 characters. It never fails.
func (id TXID) MarshalText() ([]byte, error) {
	return id.AppendText(make([]byte, 0, txidTextLen))
}

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (id *TXID) UnmarshalText(text []byte) error {
	return assign(id, ParseTXID, string(text))
}

// MarshalBinary is the ID's 12 bytes. It never fails.
func (id TXID) MarshalBinary() ([]byte, error) { return bytes.Clone(id[:]), nil }

// UnmarshalBinary takes the 12 bytes that MarshalBinary gave. The error is a
// [*ParseError].
func (id *TXID) UnmarshalBinary(data []byte) error {
	if len(data) != len(id) {
		return binaryLengthError("txid", data, "12 bytes")
	}
	copy(id[:], data)
	return nil
}

// Value gives the ID to database/sql as its 20 characters.
func (id TXID) Value() (driver.Value, error) { return id.String(), nil }

// Scan takes the ID from database/sql, as its 20 characters or its 12 bytes.
// Where a column may be NULL, use sql.Null[TXID].
func (id *TXID) Scan(src any) error { return scan("txid", src, id, len(id)) }

// The five-bit groups of eight characters, one in each byte of a word.
const (
	everyByte = 0x0101010101010101
	lowFive   = 0x1f * everyByte
)

func appendTXID(dst []byte, high uint64, low uint32) []byte {
	n := len(dst)
	dst = slices.Grow(dst, txidTextLen)[:n+txidTextLen]
	putTXID((*[txidTextLen]byte)(dst[n:]), high, low)
	return dst
}

// putTXID writes eight characters at a time: the ID is 40 + 40 + 16 bits.
func putTXID(text *[txidTextLen]byte, high uint64, low uint32) {
	binary.BigEndian.PutUint64(text[0:8], base32Chars(spread(high>>24)))
	binary.BigEndian.PutUint64(text[8:16], base32Chars(spread(high<<16|uint64(low>>16))))
	binary.BigEndian.PutUint32(text[16:20], uint32(base32Chars(spread(uint64(low)<<24))>>32))
}

// spread moves the low 40 bits of x, five by five, into the eight bytes of the
// result: halves, quarters, eighths.
func spread(x uint64) uint64 {
	x = x<<12&(0xfffff<<32) | x&0xfffff
	x = x<<6&0x03ff000003ff0000 | x&0x000003ff000003ff
	return x<<3&0x1f001f001f001f00 | x&0x001f001f001f001f
}

// base32Chars turns eight values below 32, one in each byte, into characters:
// '0' is added to each, and to those above 9 also the distance from '9'+1 to
// 'a'. Adding 118 sets a byte's top bit from 10 on.
func base32Chars(x uint64) uint64 {
	letters := (x + 118*everyByte) >> 7 & everyByte
	return x + '0'*everyByte + letters*('a'-'9'-1)
}
