package uniqueid

import (
	"encoding/binary"
	"strings"
)

const hexDigits = "0123456789abcdef"

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

// parseHexByte parses two lower-case digits of text, at an offset.
func parseHexByte(scheme, text string, offset int) (byte, error) {
	value := 0
	for i := offset; i < offset+2; i++ {
		digit := strings.IndexByte(hexDigits, text[i])
		if digit < 0 {
			return 0, characterError(scheme, text, i, "one of 0-9a-f")
		}
		value = value<<4 | digit
	}
	return byte(value), nil
}

// parseHex parses lower-case digits of text, from an offset until data is full.
func parseHex(scheme, text string, offset int, data []byte) (err error) {
	for i := range data {
		if data[i], err = parseHexByte(scheme, text, offset+2*i); err != nil {
			return err
		}
	}
	return nil
}
