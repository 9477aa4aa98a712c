package uniqueid

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestTXIDVectors(t *testing.T) {
	for _, tt := range []struct {
		millis int64
		random uint64
		text   string
	}{
		{4387530288000, 0, "vthknin0000000000000"},
		{655829050000, 0, "4om9qi54000000000000"},
		{1700000000123, 0x123456789abcd, "cbpvimguo4hkaps9lf6g"},
		{1700000000123, 1<<54 - 1, "cbpvimguvvvvvvvvvvvg"},
		{1364915708000, 0x2aaaaaaaaaaaaa, "9tpd8e0o5alalalalal0"},
		{0, 0, "00000000000000000000"},
		{4398046511103, 1<<54 - 1, "vvvvvvvvvvvvvvvvvvvg"},
	} {
		id := MakeTXID(time.UnixMilli(tt.millis), tt.random)
		if id.String() != tt.text {
			t.Errorf("%d %x: text is %s, want %s", tt.millis, tt.random, id, tt.text)
		}
		parsed, err := ParseTXID(tt.text)
		if err != nil || parsed != id {
			t.Errorf("%s: parsed as %v, %v", tt.text, parsed, err)
		}
		if parsed.Time().UnixMilli() != tt.millis || parsed.Random() != tt.random {
			t.Errorf("%s: fields are %v and %x", tt.text, parsed.Time(), parsed.Random())
		}
	}
}

func TestUniqueIDVectors(t *testing.T) {
	for _, tt := range []struct {
		bytes  string
		layout Layout
		text   string
	}{
		{"3c5a1b2c c0a8010a 00003039 0102", Classic, "PFobLMCoAQoAADA5AQI"},
		{"3b9aca00 7f000001 00000001 0001", Classic, "O5rKAH8AAAEAAAABAAE"},
		{strings.Repeat("ff", 14), Classic, "------------------8"},
		{"3b9aca00 c0a8010a 00003039 fbef fbefbeff", Threaded, "O5rKAMCoAQoAADA5@@-7777-"},
		{"6553f100 00112233445566778899 abcd 00000007", Modern, "ZVPxAAARIjNEVWZ3iJmrzQAAAAc"},
		{"6553f100 fbefbefbefbefffefdfc ffff 00000000", Modern, "ZVPxAPvvvvvvvv_-_fz__wAAAAA"},
	} {
		data, err := hex.DecodeString(strings.ReplaceAll(tt.bytes, " ", ""))
		check(t, err)
		var id UniqueID
		check(t, id.UnmarshalBinary(data))
		parsed, err := ParseUniqueID(tt.text)
		if err != nil || parsed != id || id.String() != tt.text || id.Layout() != tt.layout {
			t.Errorf("%s: text is %v, layout %v; parsed as %v, %v", tt.text, id, id.Layout(), parsed, err)
		}
	}
}

func TestShardedIDVectors(t *testing.T) {
	for _, tt := range []struct {
		random uint16
		time   uint64
		shards int
		text   string
	}{
		{0x9f3c, 0x4aa5c7f2c2d33, 4, "39f3c4aa5c7f2c2d33"},
		{0x00aa, 0x4aa5c7f2c2d51, 10, "300aa4aa5c7f2c2d51"},
		{0x0000, 0x4aa5c7f2c2d4a, 16, "1000004aa5c7f2c2d4a"},
		{0xffff, 0x4aa5c7f2f423f, MaxShards, "999999ffff4aa5c7f2f423f"},
	} {
		at := time.Unix(int64(tt.time>>20), int64(tt.time&(1<<20-1))*1000)
		id := makeShardedID(at.UnixMicro(), tt.random, uint32(tt.shards))
		if id.String() != tt.text {
			t.Errorf("%s: made %v", tt.text, id)
		}
		parsed, err := ParseShardedID(tt.text)
		if err != nil || parsed != id || !parsed.Time().Equal(at) || parsed.Random() != tt.random {
			t.Errorf("%s: parsed as %v, %v", tt.text, parsed, err)
		}
		if parsed, err := ParseShardedIDOf(tt.text, tt.shards); err != nil || parsed != id {
			t.Errorf("%s: parsed with %d shards as %v, %v", tt.text, tt.shards, parsed, err)
		}
	}
}

func TestCallNumberVectors(t *testing.T) {
	for _, tt := range []struct {
		version  uint8
		run      uint32
		sequence uint16
		text     string
	}{
		{0, 0, 0, "00000000"},
		{0, 0, 1, "00bVJxYW"},
		{0, 1, 0, "009NKUO8"},
		{0, 99, 345, "2VznWE2i"},
		{0, 8452, 11827, "03KOE60u"},
		{7, MaxRun, RunLen - 1, "dxlGgaI3"},
	} {
		n, err := ParseCallNumber(tt.text)
		if err != nil || n != shuffle(n.fields()) || n.String() != tt.text {
			t.Errorf("%s: parsed as %v, %v, and made %v", tt.text, n, err, shuffle(n.fields()))
		}
		if n.Version() != tt.version || n.Run() != tt.run || n.Sequence() != tt.sequence {
			t.Errorf("%s: fields are %d %d %d", tt.text, n.Version(), n.Run(), n.Sequence())
		}
	}
}

func newUniqueIDs(layout Layout, options ...Option) *UniqueIDGenerator {
	return Must(NewUniqueIDGenerator(layout, Must(FixedNode(netip.MustParseAddr("192.0.2.7"), 4711)), options...))
}
