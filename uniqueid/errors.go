package uniqueid

import (
	"fmt"
	"strconv"
	"strings"
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
	return fmt.Sprintf("parsing %s %.64q: %s", e.Scheme, e.Input, e.reason())
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

// reader reads the parts of an ID's text, and keeps the first error.
type reader struct {
	scheme, text string
	anyCase      bool // whether upper case is read as lower case
	err          error
}

const (
	hexDigits = "0123456789abcdef"
	hexWant   = "one of 0-9a-f"
)

// result returns what a reader has read, or its error.
func result[T any](r reader, id T) (T, error) {
	if r.err != nil {
		var none T
		return none, r.err
	}
	return id, nil
}

// fail reports what is wrong at an offset, if nothing was wrong before.
func (r *reader) fail(offset int, want, found string) {
	if r.err == nil {
		r.err = &ParseError{r.scheme, r.text, offset, want, found}
	}
}

// length checks the length of the text.
func (r *reader) length(right bool, want string) {
	if !right {
		r.fail(-1, want, strconv.Itoa(len(r.text)))
	}
}

// character checks something about the character at an offset, which may be longer than a
// byte.
func (r *reader) character(right bool, offset int, want string) {
	if right || r.err != nil {
		return
	}
	found, _ := utf8.DecodeRuneInString(r.text[offset:])
	r.fail(offset, want, strconv.QuoteRune(found))
}

// digits reads a number that fits in 64 bits. Its base is the length of the alphabet.
func (r *reader) digits(from, to int, alphabet, want string) (number uint64) {
	for i := from; i < to && r.err == nil; i++ {
		c := r.text[i]
		if r.anyCase && 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		digit := strings.IndexByte(alphabet, c)
		r.character(digit >= 0, i, want)
		number = number*uint64(len(alphabet)) + uint64(digit)
	}
	return number
}

// hex reads digits from an offset until data is full.
func (r *reader) hex(from int, data []byte) {
	for i := range data {
		data[i] = byte(r.digits(from+2*i, from+2*i+2, hexDigits, hexWant))
	}
}

// hyphens checks that there are hyphens at some offsets.
func (r *reader) hyphens(offsets ...int) {
	for _, at := range offsets {
		r.character(r.err != nil || r.text[at] == '-', at, "-")
	}
}
