package uniqueid

import (
	"bytes"
	"cmp"
	"database/sql/driver"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Layout is one of the three layouts that Apache's UNIQUE_ID has had.
type Layout uint8

// The layouts. The zero Layout is Classic.
const (
	// Classic is the layout of mod_unique_id's first document: 19 characters.
	Classic Layout = iota
	// Threaded is the layout of Apache 2.0 to 2.4.28: 24 characters.
	Threaded
	// Modern is the layout of Apache 2.4.29 and later, in the alphabet of 2.4.47
	// and later: 27 characters.
	Modern
)

const (
	// pidBits is how much of the pid field a pid needs: Linux assigns no pid above 2^22.
	pidBits = 22
	// longestUniqueID is the size of the longest layout in bytes.
	longestUniqueID = 20
)

// The digits of base64, with the two characters that mod_unique_id has used in place of +
// and /.
const (
	base64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	apacheDigits  = base64Letters + "@-"
	modernDigits  = base64Letters + "-_"
)

var apacheEncoding = base64.NewEncoding(apacheDigits).WithPadding(base64.NoPadding)

// layoutFacts is what differs between the layouts.
type layoutFacts struct {
	name     string
	size     int // in bytes
	text     int // in characters
	counter  int // offset of the counter; the thread index follows, if there is one
	extra    int // bits of the extra counter; see [UniqueIDGenerator]
	encoding *base64.Encoding
	digits   string
}

var layouts = [...]layoutFacts{
	Classic:  {"classic", 14, 19, 12, 32 - pidBits, apacheEncoding, apacheDigits},
	Threaded: {"threaded", 18, 24, 12, 32, apacheEncoding, apacheDigits},
	Modern:   {"modern", 20, 27, 14, 32, base64.RawURLEncoding, modernDigits},
}

func findLayout(is func(layoutFacts) bool) (layout Layout, ok bool) {
	at := slices.IndexFunc(layouts[:], is)
	return Layout(max(at, 0)), at >= 0
}

// ParseLayout reads the name of a layout: classic, threaded or modern.
func ParseLayout(name string) (Layout, error) {
	if layout, ok := findLayout(func(facts layoutFacts) bool { return facts.name == name }); ok {
		return layout, nil
	}
	return Classic, fmt.Errorf("unknown layout %q: want classic, threaded or modern", name)
}

// String returns the layout's name: classic, threaded or modern.
func (l Layout) String() string { return layouts[l].name }

// UniqueID is the UNIQUE_ID of Apache's mod_unique_id, in one of its layouts.
// Fields that a layout does not have are zero. The zero UniqueID is a valid
// classic one.
type UniqueID struct {
	layout Layout
	data   [longestUniqueID]byte
}

// ParseUniqueID reads a UniqueID of any layout; the length determines which. The error
// is a [*ParseError].
func ParseUniqueID(text string) (UniqueID, error) {
	layout, ok := findLayout(func(facts layoutFacts) bool { return facts.text == len(text) })
	r := reader{scheme: "unique_id", text: text}
	if r.length(ok, "19, 24 or 27 characters"); !ok {
		return UniqueID{}, r.err
	}
	facts := &layouts[layout]
	r.scheme += " " + facts.name
	r.digits(0, len(text), facts.digits, "one of A-Za-z0-9"+facts.digits[len(base64Letters):])
	id := UniqueID{layout: layout}
	_, err := facts.encoding.Strict().Decode(id.data[:], []byte(text))
	r.character(err == nil, len(text)-1, "a character whose last 2 bits are zero")
	return result(r, id)
}

// Layout returns the ID's layout.
func (id UniqueID) Layout() Layout { return id.layout }

// Time returns when the request arrived, in UTC, to the second. The field holds
// 32 bits: it ends in the year 2106.
func (id UniqueID) Time() time.Time {
	return time.Unix(int64(binary.BigEndian.Uint32(id.data[:])), 0).UTC()
}

// UniqueIDFields are the fields of a UniqueID after its time. One that the layout does not
// have is zero.
type UniqueIDFields struct {
	// Addr is the machine's IPv4 address, in classic and threaded. With a random node, it
	// is the first half of the random bits.
	Addr netip.Addr
	// PID is the process ID: in classic the low 22 bits of the pid field, in threaded all 32.
	PID uint32
	// Extra is the extra counter in the high 10 bits of the pid field, in classic. See
	// [UniqueIDGenerator].
	Extra uint16
	// Root is the 80 random bits that distinguish a process from others, in modern.
	Root    [10]byte
	Counter uint16
	// Thread is the thread index, in threaded and modern. If this package made the ID, it
	// is the extra counter.
	Thread uint32
}

// Fields returns the fields after the time.
func (id UniqueID) Fields() (f UniqueIDFields) {
	counter := layouts[id.layout].counter
	f.Counter = binary.BigEndian.Uint16(id.data[counter:])
	if id.layout != Classic {
		f.Thread = binary.BigEndian.Uint32(id.data[counter+2:])
	}
	if id.layout == Modern {
		f.Root = [10]byte(id.data[4:])
		return f
	}
	f.Addr = netip.AddrFrom4([4]byte(id.data[4:]))
	f.PID = binary.BigEndian.Uint32(id.data[8:])
	if id.layout == Classic {
		f.PID, f.Extra = f.PID&(1<<pidBits-1), uint16(f.PID>>pidBits)
	}
	return f
}

func (id *UniqueID) bytes() []byte { return id.data[:layouts[id.layout].size] }

// Compare returns -1, 0 or 1, by the order of times, then of the other bytes.
func (id UniqueID) Compare(other UniqueID) int {
	return cmp.Or(bytes.Compare(id.data[:], other.data[:]), cmp.Compare(id.layout, other.layout))
}

// String returns the ID's text of 19, 24 or 27 characters.
func (id UniqueID) String() string {
	text, _ := id.AppendText(make([]byte, 0, 27))
	return string(text)
}

// AppendText appends the ID's text to dst. It never fails.
func (id UniqueID) AppendText(dst []byte) ([]byte, error) {
	return layouts[id.layout].encoding.AppendEncode(dst, id.bytes()), nil
}

var uniqueIDForm = form[UniqueID]{
	scheme: "unique_id",
	parse:  ParseUniqueID,
	unpack: func(data []byte) (id UniqueID, ok bool) {
		copy(id.data[:], data)
		id.layout, ok = findLayout(func(facts layoutFacts) bool { return facts.size == len(data) })
		return id, ok
	},
	bytes: "14, 18 or 20 bytes",
}

// MarshalText returns the ID's text. It never fails.
func (id UniqueID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads the text of any layout. The error is a [*ParseError].
func (id *UniqueID) UnmarshalText(text []byte) error { return uniqueIDForm.unmarshalText(id, text) }

// MarshalBinary returns the ID's 14, 18 or 20 bytes. It never fails.
func (id UniqueID) MarshalBinary() ([]byte, error) { return id.bytes(), nil }

// UnmarshalBinary reads what MarshalBinary returned. The error is a [*ParseError].
func (id *UniqueID) UnmarshalBinary(data []byte) error { return uniqueIDForm.unmarshalBinary(id, data) }

// Value returns the ID for database/sql, as its text.
func (id UniqueID) Value() (driver.Value, error) { return value(id) }

// Scan reads the ID from database/sql, as text or bytes of any layout.
func (id *UniqueID) Scan(src any) error { return uniqueIDForm.scan(id, src) }

// decodeUniqueID decodes an ID. That does not show whether its node is an address and a pid
// or random bits, unless it cannot be the former.
func decodeUniqueID(text string) (Decoded, error) {
	id, err := ParseUniqueID(text)
	if err != nil {
		return Decoded{}, err
	}
	f := id.Fields()
	d := Decoded{Layout: id.layout.String(), Time: id.Time(), Fields: map[string]any{"counter": uint64(f.Counter)}}
	switch {
	case id.layout == Modern:
		d.Fields["root"] = hex.EncodeToString(f.Root[:])
	case f.nodeIsRandom():
		d.Note, d.Fields["node"] = noteRandom, hex.EncodeToString(id.data[4:12])
	default:
		d.Note, d.Fields["address"], d.Fields["pid"] = noteMaybeRandom, f.Addr.String(), uint64(f.PID)
	}
	if id.layout != Classic {
		d.Fields["thread"] = uint64(f.Thread)
	} else if d.Note == noteMaybeRandom {
		d.Fields["extra"] = uint64(f.Extra)
	}
	return d, nil
}

const (
	noteRandom      = "the node is random bits, for it is no address and pid"
	noteMaybeRandom = "address and pid are random bits if the node was random, which an ID does not tell"
)

// nodeIsRandom reports whether the node of a classic or threaded ID cannot be an
// address and a pid.
func (f UniqueIDFields) nodeIsRandom() bool {
	first := f.Addr.As4()[0]
	return first == 0 || first >= 224 || f.PID>>pidBits != 0 // this network, multicast, reserved
}

// decodeEarlyModern parses the modern layout in the alphabet of Apache 2.4.29 to 2.4.46.
// That has @ and - where the current one has - and _. A text with neither @ nor - is the
// same in both. A text with a _ is in the current one.
func decodeEarlyModern(text string) (Decoded, error) {
	if len(text) != layouts[Modern].text || strings.Contains(text, "_") || !strings.ContainsAny(text, "@-") {
		return Decoded{}, errSameReading
	}
	reading, err := decodeUniqueID(strings.NewReplacer("@", "-", "-", "_").Replace(text))
	if err != nil {
		return Decoded{}, errSameReading // the reading in the current alphabet reports errors
	}
	reading.Note = "in the alphabet of Apache 2.4.29 to 2.4.46"
	return reading, nil
}
