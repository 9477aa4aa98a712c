package uniqueid

import (
	"database/sql/driver"
	"fmt"
)

// form is how the IDs of one kind are read from texts, bytes and columns of databases. The
// methods that each kind has for this are calls of its form.
//
// Some kinds have zero values that are IDs, which are written like all others. In the other
// kinds, the zero value means none. All methods then write nothing: an empty text, no bytes,
// or NULL.
type form[T any] struct {
	scheme string
	parse  func(text string) (T, error)
	// unpack reads bytes, if the kind has a form in bytes. It returns false for bytes of no such
	// ID. No text of the kind is as short or long.
	unpack func(data []byte) (T, bool)
	// bytes is what unpack reads, in words.
	bytes string
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
		var ok bool
		if read, ok = f.unpack(data); !ok {
			return &ParseError{f.scheme, string(data), -1, f.bytes, fmt.Sprintf("%d bytes, %.20x", len(data), data)}
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
		if f.unpack != nil {
			if read, ok := f.unpack(src); ok {
				*id = read
				return nil
			}
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
