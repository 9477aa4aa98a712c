package uniqueid

import (
	"cmp"
	"database/sql/driver"
)

const (
	callNumberBits = 47
	callNumberText = 8
	sequenceBits   = 14
	runBits        = 30

	// RunLen is how many call numbers one run has.
	RunLen = 1 << sequenceBits
	// MaxRun is the greatest run number.
	MaxRun = 1<<runBits - 1
	// MaxCallNumber is the greatest call number, dxlGgaI3.
	MaxCallNumber CallNumber = 1<<callNumberBits - 1

	base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// callNumberOrder says where a call number's bits come from. Bit i of the number, counted
// from the most significant, is this bit of the fields. The table is the one that
// Chibrary used.
var callNumberOrder = [callNumberBits]uint8{
	3, 15, 20, 26, 6, 25, 23, 0, 16, 41, 18, 46, 42, 32, 31, 34, 1, 12, 7, 38, 33, 24, 2, 10,
	14, 37, 5, 43, 13, 29, 27, 35, 21, 8, 44, 4, 9, 30, 36, 19, 39, 45, 40, 17, 22, 11, 28,
}

// CallNumber is a short ID as "Distributed ID Generation and Bit Packing" describes it
// for the mailing list archive Chibrary. It has 47 bits, or 8 characters of base62
// (0-9A-Za-z, the most significant first, zeros on the left).
//
// The 47 bits are shuffled in a fixed order, so that a call number does not reveal the next
// one. Anyone who knows the order can compute it. A CallNumber holds the bits in the order of the text, 0 to [MaxCallNumber]. No
// generator makes greater values; their text is that of the low 47 bits. A column of a database
// for it is one of text: some drivers would write the digits of the text into one of numbers.
type CallNumber uint64

// shuffle puts the fields' bits in the order of a call number.
func shuffle(fields uint64) (n CallNumber) {
	for i, from := range callNumberOrder {
		bit := fields >> (callNumberBits - 1 - from) & 1
		n |= CallNumber(bit) << (callNumberBits - 1 - i)
	}
	return n
}

// fields restores the order of the fields' bits.
func (n CallNumber) fields() (fields uint64) {
	for i, to := range callNumberOrder {
		bit := uint64(n) >> (callNumberBits - 1 - i) & 1
		fields |= bit << (callNumberBits - 1 - to)
	}
	return fields
}

// ParseCallNumber reads the 8 characters of a CallNumber. The error is a
// [*ParseError].
func ParseCallNumber(text string) (CallNumber, error) {
	r := reader{scheme: "call_number", text: text}
	r.length(len(text) == callNumberText, "8 characters")
	number := CallNumber(r.digits(0, callNumberText, base62Digits, "one of 0-9A-Za-z"))
	if number > MaxCallNumber {
		r.fail(-1, "dxlGgaI3 or less", text)
	}
	return result(r, number)
}

// Version returns the number of the layout, 0 to 7. This package makes version 0.
func (n CallNumber) Version() uint8 { return uint8(n.fields() >> (runBits + sequenceBits)) }

// Run returns the number of the run, 0 to [MaxRun].
func (n CallNumber) Run() uint32 { return uint32(n.fields() >> sequenceBits & MaxRun) }

// Sequence returns the number within the run, 0 to [RunLen]-1.
func (n CallNumber) Sequence() uint16 { return uint16(n.fields() & (RunLen - 1)) }

// Compare returns -1, 0 or 1, by the order of texts. It is not the order of making.
func (n CallNumber) Compare(other CallNumber) int { return cmp.Compare(n, other) }

// String returns the number's 8 characters.
func (n CallNumber) String() string {
	text, _ := n.AppendText(make([]byte, 0, callNumberText))
	return string(text)
}

// AppendText appends the number's 8 characters to dst. It never fails.
func (n CallNumber) AppendText(dst []byte) ([]byte, error) {
	var text [callNumberText]byte
	rest := n & MaxCallNumber
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = base62Digits[rest%62]
		rest /= 62
	}
	return append(dst, text[:]...), nil
}

var callNumberForm = form[CallNumber]{scheme: "call_number", parse: ParseCallNumber}

// MarshalText returns the number's 8 characters. It never fails.
func (n CallNumber) MarshalText() ([]byte, error) { return n.AppendText(nil) }

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (n *CallNumber) UnmarshalText(text []byte) error { return callNumberForm.unmarshalText(n, text) }

// Value returns the number for database/sql, as its 8 characters.
func (n CallNumber) Value() (driver.Value, error) { return value(n) }

// Scan reads the number from database/sql, as its 8 characters.
func (n *CallNumber) Scan(src any) error { return callNumberForm.scan(n, src) }

func decodeCallNumber(text string) (Decoded, error) {
	n, err := ParseCallNumber(text)
	return Decoded{Fields: map[string]any{
		"version": uint64(n.Version()), "run": uint64(n.Run()), "sequence": uint64(n.Sequence()),
	}}, err
}
