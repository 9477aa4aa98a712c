package serialize

import (
	"encoding/json"
	"fmt"

	"github.com/dustin/go-humanize"
)

// Size is a number of bytes. In JSON it is a number, or a text with a unit such
// as `64KiB`.
type Size int64

// bufferOff is the size of a buffer that does not exist: the body streams.
const bufferOff Size = -1

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Size) UnmarshalJSON(text []byte) error {
	var number int64
	if err := json.Unmarshal(text, &number); err == nil {
		*s = Size(number)
		return nil
	}
	var withUnit string
	if err := json.Unmarshal(text, &withUnit); err != nil {
		return fmt.Errorf("size %s: expected a number of bytes or a text such as \"64KiB\"", text)
	}
	size, err := parseSize(withUnit)
	*s = size
	return err
}

// parseSize reads a number of bytes with or without a unit: `4096`, `64KiB`, `1MB`; or
// `off`.
func parseSize(text string) (Size, error) {
	if text == "off" {
		return bufferOff, nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > maxBufferDisk {
		return 0, fmt.Errorf("size %q: expected a number of bytes up to 1TiB, such as 64KiB", text)
	}
	return Size(n), nil
}
