package uniqueid

import (
	"fmt"
	"strconv"
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

// Must returns value, or panics with the error. It is for texts and settings in the source
// code, as in Must(ParseTXID("cbpvimguo4hkaps9lf6g")).
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// longestInput is how much of a wrong input an error quotes, in bytes.
const longestInput = 64

func quote(input string) string {
	if len(input) > longestInput {
		return strconv.Quote(input[:longestInput]) + "..."
	}
	return strconv.Quote(input)
}
