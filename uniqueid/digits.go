package uniqueid

import (
	"encoding/binary"
	"strings"
)

const (
	hexDigits = "0123456789abcdef"
	hexWant   = "one of 0-9a-f"
)

// parseDigits parses a part of text as a number that fits in 64 bits. Its base is the
// length of the alphabet. The error says what was wanted.
func parseDigits(scheme, text string, from, to int, alphabet, want string) (number uint64, err error) {
	for i := from; i < to; i++ {
		digit := strings.IndexByte(alphabet, text[i])
		if digit < 0 {
			return 0, characterError(scheme, text, i, want)
		}
		number = number*uint64(len(alphabet)) + uint64(digit)
	}
	return number, nil
}

// parseHex parses lower-case digits of text, from an offset until data is full.
func parseHex(scheme, text string, offset int, data []byte) error {
	for i := range data {
		at := offset + 2*i
		value, err := parseDigits(scheme, text, at, at+2, hexDigits, hexWant)
		if err != nil {
			return err
		}
		data[i] = byte(value)
	}
	return nil
}

// parseHyphens checks that text has hyphens at some offsets.
func parseHyphens(scheme, text string, offsets ...int) error {
	for _, at := range offsets {
		if text[at] != '-' {
			return characterError(scheme, text, at, "-")
		}
	}
	return nil
}

// hexPairs are the texts of all bytes, the first digit in the low byte.
var hexPairs = func() (pairs [1 << 8]uint16) {
	for i := range pairs {
		pairs[i] = uint16(hexDigits[i>>4]) | uint16(hexDigits[i&15])<<8
	}
	return pairs
}()

// putHex writes two digits for each byte of data.
func putHex(text, data []byte) {
	for i, b := range data {
		binary.LittleEndian.PutUint16(text[2*i:], hexPairs[b])
	}
}
