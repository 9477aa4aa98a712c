package uniqueid

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	shardedTailLen = 17 // random and time, without the shard
	// MaxShards is the greatest useful number of shards: the shard comes from the
	// microseconds of a second.
	MaxShards = 1_000_000
	// shardedMaxText is the length with a shard of six digits.
	shardedMaxText = 6 + shardedTailLen
)

var shardedIDKind = Kind{
	Scheme: "sharded_id",
	New: func(setup Setup) (Generate, error) {
		g, err := NewShardedIDGenerator(cmp.Or(setup.Shards, 1))
		if err != nil {
			return nil, err
		}
		return func(context.Context, time.Time) (string, error) { return g.New().String(), nil }, nil
	},
	characters: "18 to 23",
	readings:   []reading{{shardedTailLen + 1, shardedMaxText, 16, decodeShardedID}},
}

// ShardedID is an ID that carries the number of its object's shard, as
// described in "UUID generation with shard numbers in PHP":
//
//	shard, decimal   random   seconds, 1970    microseconds
//	+--------------+--------+----------------+-------------+
//	| 1 to 6 digits| 4 hex  |     8 hex      |    5 hex    |
//	+--------------+--------+----------------+-------------+
//
// The shard is the microseconds modulo the number of shards. The last 13 characters are
// what PHP's uniqid returns. Hexadecimal digits are lower-case. The last 17 characters
// are the ID and everything before them is the shard, so an ID for any number of shards
// can be parsed.
//
// The zero ShardedID is valid: shard 0, 1970.
type ShardedID struct {
	shard   uint32
	random  uint16
	seconds uint32
	micros  uint32
}

// MakeShardedID makes a ShardedID from its fields. It uses the microseconds of t since
// 1970, with 32 bits for the seconds. The number of shards is 1 to [MaxShards].
func MakeShardedID(t time.Time, random uint16, shards int) (ShardedID, error) {
	if err := checkShards(shards); err != nil {
		return ShardedID{}, err
	}
	return makeShardedID(t.UnixMicro(), random, uint32(shards)), nil
}

func makeShardedID(micros int64, random uint16, shards uint32) ShardedID {
	seconds, rest := micros/1e6, micros%1e6
	if rest < 0 {
		seconds, rest = seconds-1, rest+1e6
	}
	return ShardedID{
		shard:   uint32(rest) % shards,
		random:  random,
		seconds: uint32(seconds),
		micros:  uint32(rest),
	}
}

func checkShards(shards int) error {
	if shards < 1 || shards > MaxShards {
		return fmt.Errorf("number of shards is %d: want 1 to %d", shards, MaxShards)
	}
	return nil
}

// ParseShardedID reads a ShardedID of any number of shards. The error is a
// [*ParseError].
func ParseShardedID(text string) (ShardedID, error) {
	const scheme = "sharded_id"
	if len(text) <= shardedTailLen || len(text) > shardedMaxText {
		return ShardedID{}, lengthError(scheme, text, "18 to 23 characters")
	}
	split := len(text) - shardedTailLen
	for i := range split {
		if text[i] < '0' || text[i] > '9' {
			return ShardedID{}, characterError(scheme, text, i, "one of 0-9 in the shard")
		}
	}
	for i := split; i < len(text); i++ {
		if strings.IndexByte(hexDigits, text[i]) < 0 {
			return ShardedID{}, characterError(scheme, text, i, "one of 0-9a-f")
		}
	}
	if text[0] == '0' && split > 1 {
		return ShardedID{}, characterError(scheme, text, 0, "a shard without leading zeros")
	}
	id := ShardedID{
		shard:   uint32(mustParse(text[:split], 10)),
		random:  uint16(mustParse(text[split:split+4], 16)),
		seconds: uint32(mustParse(text[split+4:split+12], 16)),
		micros:  uint32(mustParse(text[split+12:], 16)),
	}
	if err := id.check(text, split+12); err != nil {
		return ShardedID{}, err
	}
	return id, nil
}

// mustParse parses digits that have been checked.
func mustParse(digits string, base int) uint64 {
	n, err := strconv.ParseUint(digits, base, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// check rejects an ID that no number of shards can make. The shard is the remainder of
// the microseconds divided by the number of shards: the microseconds themselves, or less
// than half of them.
func (id ShardedID) check(input string, offset int) error {
	if id.micros >= 1e6 {
		return &ParseError{"sharded_id", input, offset, "microseconds below f4240 (1000000)",
			fmt.Sprintf("%05x (%d)", id.micros, id.micros)}
	}
	if id.shard != id.micros && id.shard >= id.micros-min(id.shard, id.micros) {
		return &ParseError{"sharded_id", input, 0,
			fmt.Sprintf("a shard that %d microseconds can give", id.micros), strconv.Itoa(int(id.shard))}
	}
	return nil
}

// ParseShardedIDOf reads a ShardedID made for the given number of shards and
// checks its shard. The error about the text is a [*ParseError].
func ParseShardedIDOf(text string, shards int) (ShardedID, error) {
	if err := checkShards(shards); err != nil {
		return ShardedID{}, err
	}
	id, err := ParseShardedID(text)
	if err != nil {
		return ShardedID{}, err
	}
	want := id.micros % uint32(shards)
	if id.shard != want {
		return ShardedID{}, &ParseError{"sharded_id", text, 0,
			fmt.Sprintf("shard %d, which is %d microseconds modulo %d shards", want, id.micros, shards),
			strconv.Itoa(int(id.shard))}
	}
	return id, nil
}

// Shard returns the number of the shard, from 0.
func (id ShardedID) Shard() int { return int(id.shard) }

// Random returns the four random hexadecimal digits.
func (id ShardedID) Random() uint16 { return id.random }

// Time returns when the ID was made, in UTC, to the microsecond. Its seconds are a
// field of 32 bits: it ends in the year 2106.
func (id ShardedID) Time() time.Time {
	return time.Unix(int64(id.seconds), int64(id.micros)*1000).UTC()
}

// Compare orders IDs by time. Within a microsecond, the order is fixed but has no
// meaning. Texts do not sort this way.
func (id ShardedID) Compare(other ShardedID) int {
	return cmp.Or(
		cmp.Compare(id.seconds, other.seconds),
		cmp.Compare(id.micros, other.micros),
		cmp.Compare(id.random, other.random),
		cmp.Compare(id.shard, other.shard),
	)
}

// String returns the ID's text of 18 to 23 characters.
func (id ShardedID) String() string {
	var text [shardedMaxText]byte
	return string(id.append(text[:0]))
}

// AppendText appends the ID's text to dst. It never fails.
func (id ShardedID) AppendText(dst []byte) ([]byte, error) { return id.append(dst), nil }

func (id ShardedID) append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, uint64(id.shard), 10)
	dst = appendHex(dst, uint32(id.random), 4)
	dst = appendHex(dst, id.seconds, 8)
	return appendHex(dst, id.micros, 5)
}

func appendHex(dst []byte, value uint32, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[value>>shift&0xf])
	}
	return dst
}

// MarshalText returns the ID's text. It never fails.
func (id ShardedID) MarshalText() ([]byte, error) {
	return id.append(make([]byte, 0, shardedMaxText)), nil
}

// UnmarshalText reads a ShardedID of any number of shards. The error is a
// [*ParseError].
func (id *ShardedID) UnmarshalText(text []byte) error {
	return assign(id, ParseShardedID, string(text))
}

// shardedBinaryLen is the sum of 24 bits for the shard, 16 random bits, 32 for the
// seconds and 24 for the microseconds, in bytes.
const shardedBinaryLen = 12

// MarshalBinary returns the ID as 12 bytes, big-endian: shard 24 bits, random 16,
// seconds 32, microseconds 24. The document defines no such form. It never fails.
func (id ShardedID) MarshalBinary() ([]byte, error) {
	data := make([]byte, shardedBinaryLen)
	binary.BigEndian.PutUint64(data[0:], uint64(id.shard)<<40|uint64(id.random)<<24|uint64(id.seconds>>8))
	binary.BigEndian.PutUint32(data[8:], id.seconds<<24|id.micros)
	return data, nil
}

// UnmarshalBinary reads the 12 bytes that MarshalBinary returned. The error is a
// [*ParseError].
func (id *ShardedID) UnmarshalBinary(data []byte) error {
	if len(data) != shardedBinaryLen {
		return binaryLengthError("sharded_id", data, "12 bytes")
	}
	high, low := binary.BigEndian.Uint64(data), binary.BigEndian.Uint32(data[8:])
	read := ShardedID{
		shard:   uint32(high >> 40),
		random:  uint16(high >> 24),
		seconds: uint32(high)<<8 | low>>24,
		micros:  low & 0xffffff,
	}
	if err := read.check(string(data), 9); err != nil {
		return err
	}
	*id = read
	return nil
}

// Value returns the ID for database/sql, as its text.
func (id ShardedID) Value() (driver.Value, error) { return id.String(), nil }

// Scan reads the ID from database/sql, as its text or its 12 bytes. Where a
// column may be NULL, use sql.Null[ShardedID].
func (id *ShardedID) Scan(src any) error { return scan("sharded_id", src, id, shardedBinaryLen) }

func decodeShardedID(text string) (Decoded, error) {
	id, err := ParseShardedID(text)
	return Decoded{
		Time: id.Time(),
		Fields: []Field{
			{"shard", uint64(id.Shard())},
			{"random", fmt.Sprintf("%04x", id.Random())},
		},
	}, err
}
