package uniqueid

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
	found, size := utf8.DecodeRuneInString(r.text[offset:])
	if found == utf8.RuneError && size <= 1 {
		r.fail(offset, want, fmt.Sprintf("byte 0x%02x", r.text[offset]))
		return
	}
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

// form is how the IDs of one kind are read from texts, bytes and columns of databases. The
// methods that each kind has for this are calls of its form.
//
// Some kinds have zero values that are IDs, which are written like all others. In the other
// kinds, the zero value means none. All methods then write nothing: an empty text, no bytes,
// or NULL.
type form[T any] struct {
	scheme string
	parse  func(text string) (T, error)
	// sizes are those of the bytes, if the kind has a form in bytes. No text of the kind is
	// as short or long.
	sizes []int
	// size is sizes in words.
	size string
	// unpack reads bytes of one of the sizes.
	unpack func(data []byte) (T, error)
	// optional says that the zero value means none, and is read from nothing.
	optional bool
}

func (f *form[T]) unmarshalText(id *T, text []byte) error {
	var read T
	if len(text) > 0 || !f.optional {
		var err error
		if read, err = f.parse(string(text)); err != nil {
			return err
		}
	}
	*id = read
	return nil
}

func (f *form[T]) unmarshalBinary(id *T, data []byte) error {
	var read T
	if len(data) > 0 || !f.optional {
		if !slices.Contains(f.sizes, len(data)) {
			return &ParseError{f.scheme, string(data), -1, f.size, strconv.Itoa(len(data))}
		}
		var err error
		if read, err = f.unpack(data); err != nil {
			return err
		}
	}
	*id = read
	return nil
}

// scan reads a column that holds the text or the bytes.
func (f *form[T]) scan(id *T, src any) error {
	found := fmt.Sprintf("a value of type %T", src)
	switch src := src.(type) {
	case string:
		return f.unmarshalText(id, []byte(src))
	case []byte:
		if slices.Contains(f.sizes, len(src)) {
			return f.unmarshalBinary(id, src)
		}
		return f.unmarshalText(id, src)
	case nil:
		if f.optional {
			return f.unmarshalText(id, nil)
		}
		found = "NULL, which sql.Null can read"
	}
	return &ParseError{f.scheme, "", -1, "text or bytes", found}
}

// value returns what is stored in a column: the text, or NULL for none.
func value(id fmt.Stringer) (driver.Value, error) {
	if text := id.String(); text != "" {
		return text, nil
	}
	return nil, nil
}
