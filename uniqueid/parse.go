package uniqueid

import (
	"database/sql/driver"
	"encoding"
	"fmt"
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

// longestInput is how much of a wrong input an error quotes, in bytes.
const longestInput = 64

// Error says what was being read, where the error is, what was expected and what was
// found. It quotes only the beginning of a long input.
func (e *ParseError) Error() string {
	input := fmt.Sprintf("%q", e.Input)
	if len(e.Input) > longestInput {
		input = fmt.Sprintf("%q...", e.Input[:longestInput])
	}
	if e.Offset < 0 {
		return fmt.Sprintf("parsing %s %s: want %s, found %s", e.Scheme, input, e.Want, e.Found)
	}
	return fmt.Sprintf("parsing %s %s: at offset %d: want %s, found %s",
		e.Scheme, input, e.Offset, e.Want, e.Found)
}

func lengthError(scheme, text, want string) error {
	return &ParseError{scheme, text, -1, want, fmt.Sprintf("%d", len(text))}
}

func binaryLengthError(scheme string, data []byte, want string) error {
	return &ParseError{scheme, string(data), -1, want, fmt.Sprintf("%d", len(data))}
}

// characterError is an error about the character at an offset, which may be longer than a
// byte.
func characterError(scheme, text string, offset int, want string) error {
	found, size := utf8.DecodeRuneInString(text[offset:])
	if found == utf8.RuneError && size <= 1 {
		return &ParseError{scheme, text, offset, want, fmt.Sprintf("byte 0x%02x", text[offset])}
	}
	return &ParseError{scheme, text, offset, want, fmt.Sprintf("%q", found)}
}

// assign sets *id only if text could be parsed.
func assign[T any](id *T, parse func(string) (T, error), text string) error {
	parsed, err := parse(text)
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// assignOrZero is assign for an ID whose zero value has the empty text.
func assignOrZero[T any](id *T, parse func(string) (T, error), text string) error {
	if text == "" {
		*id = *new(T)
		return nil
	}
	return assign(id, parse, text)
}

// reader is implemented by every ID of this package.
type reader interface {
	encoding.TextUnmarshaler
	encoding.BinaryUnmarshaler
}

// scan reads a column of database/sql. No binary form is as long as a text.
func scan(scheme string, src any, id reader, binaryLens ...int) error {
	switch src := src.(type) {
	case string:
		return id.UnmarshalText([]byte(src))
	case []byte:
		for _, n := range binaryLens {
			if len(src) == n {
				return id.UnmarshalBinary(src)
			}
		}
		return id.UnmarshalText(src)
	case nil:
		return &ParseError{scheme, "", -1, "text or bytes", "NULL"}
	default:
		return &ParseError{scheme, "", -1, "text or bytes", fmt.Sprintf("a value of type %T", src)}
	}
}

// valueOrNull is the Value of an ID whose zero value is NULL.
func valueOrNull(id interface {
	IsZero() bool
	String() string
}) (driver.Value, error) {
	if id.IsZero() {
		return nil, nil
	}
	return id.String(), nil
}

// scanOrZero is scan for an ID whose zero value is NULL.
func scanOrZero(scheme string, src any, id reader, binaryLen int) error {
	if src == nil {
		return id.UnmarshalText(nil)
	}
	return scan(scheme, src, id, binaryLen)
}
