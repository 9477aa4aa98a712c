package directive

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// Size is a number of bytes. In JSON it is a number, or a text with a unit such
// as `64KiB`.
type Size int64

// Off is the size of what does not exist: a buffer that is off streams.
const Off Size = -1

// String is the size as a Caddyfile has it, in bytes.
func (s Size) String() string {
	if s == Off {
		return "off"
	}
	return strconv.FormatInt(int64(s), 10)
}

// maxSize is the greatest size of all.
const maxSize = 1 << 40

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
		return Off, nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > maxSize {
		return 0, fmt.Errorf("size %q: expected a number of bytes up to 1TiB, such as 64KiB", text)
	}
	return Size(n), nil
}

// Sizes parses the sizes of a subdirective: at least the first one.
func Sizes(d *caddyfile.Dispenser, expected string, sizes ...**Size) error {
	name, args := d.Val(), d.RemainingArgs()
	if len(args) == 0 || len(args) > len(sizes) {
		return d.Errf("%s: found %d values; expected %s", name, len(args), expected)
	}
	for i, text := range args {
		size, err := parseSize(text)
		if err != nil {
			return d.Errf("%s: %w", name, err)
		}
		*sizes[i] = &size
	}
	return nil
}

// CheckSize returns an error for a size outside of a range, if it is there.
func CheckSize(name string, size *Size, least, most Size, expected string) error {
	if size != nil && (*size < least || *size > most) {
		return fmt.Errorf("%s %s: expected a size %s", name, *size, expected)
	}
	return nil
}
