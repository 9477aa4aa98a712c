package uniqueid

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// ParseError is the error of every function in this package that reads an ID.
type ParseError struct {
	// Scheme is what was being read, such as "txid" or "unique_id classic".
	Scheme string
	// Input is the text or the bytes, unchanged.
	Input string
	// Offset is the position of the error in Input, in bytes from 0, or -1 if it
	// concerns the whole, such as its length.
	Offset int
	// Want says what was expected.
	Want string
	// Found says what was found instead.
	Found string
}

// Error says what was being read, where the error is, what was expected and what was
// found. It quotes only the beginning of a long input.
func (e *ParseError) Error() string {
	return fmt.Sprintf("parsing %s %s: %s", e.Scheme, quote(e.Input), e.reason())
}

// reason is the error without the input.
func (e *ParseError) reason() string {
	reason := fmt.Sprintf("want %s, found %s", e.Want, e.Found)
	if e.Offset < 0 {
		return reason
	}
	return fmt.Sprintf("at offset %d: %s", e.Offset, reason)
}

// longestInput is how much of a wrong input an error quotes, in bytes.
const longestInput = 64

func quote(input string) string {
	if len(input) > longestInput {
		return strconv.Quote(input[:longestInput]) + "..."
	}
	return strconv.Quote(input)
}

func lengthError(scheme, input, want string) error {
	return &ParseError{scheme, input, -1, want, strconv.Itoa(len(input))}
}

// characterError is an error about the character at an offset, which may be longer than a
// byte.
func characterError(scheme, text string, offset int, want string) error {
	found, size := utf8.DecodeRuneInString(text[offset:])
	if found == utf8.RuneError && size <= 1 {
		return byteError(scheme, text, offset, want)
	}
	return &ParseError{scheme, text, offset, want, strconv.QuoteRune(found)}
}

func byteError(scheme, input string, offset int, want string) error {
	return &ParseError{scheme, input, offset, want, fmt.Sprintf("byte 0x%02x", input[offset])}
}
