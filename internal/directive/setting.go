package directive

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Setting is one subdirective in the block of a directive, and the JSON field of the same name. T is
// a pointer to what has the field.
type Setting[T any] struct {
	Name   string
	Syntax string                              // of the values
	Usual  string                              // the default, as the documents say it
	Parse  func(T, *caddyfile.Dispenser) error // gets a dispenser that is at the name
	Fill   func(T)                             // applies the default; nil if there is none
	Check  func(T) error                       // after Parse, or after the defaults; nil if all is allowed
}

// With is a setting whose value may have more beside it, as parse reads it. usual is what the documents say.
func (s Setting[T]) With(syntax, usual string, parse func(T, *caddyfile.Dispenser) error) Setting[T] {
	s.Syntax, s.Usual, s.Parse = syntax, usual, parse
	return s
}

// Settings are those of a block, in the order of the documents. A repeated one overrides the earlier one.
type Settings[T any] []Setting[T]

// ParseBlock parses a block into what has the fields. The dispenser is at the word before the block. of
// is the name of the directive, for errors.
func (all Settings[T]) ParseBlock(d *caddyfile.Dispenser, of string, into T) error {
	if d.NextArg() {
		return Unexpected(d, of, "a block")
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := all.parse(d, of, into); err != nil {
			return err
		}
	}
	return nil
}

func (all Settings[T]) parse(d *caddyfile.Dispenser, of string, into T) error {
	names := make([]string, len(all))
	for i, s := range all {
		if s.Name != d.Val() {
			names[i] = s.Name
			continue
		}
		if err := s.Parse(into, d); err != nil || s.Check == nil {
			return err
		}
		return In(d, s.Check(into))
	}
	expected := strings.Join(names, ", ")
	if len(names) > 1 {
		expected = "one of " + expected
	}
	return d.Errf("%s: unknown subdirective %s; expected %s", of, Quoted(d.Val()), expected)
}

// FillIn applies the defaults, and refuses values that make no sense.
func (all Settings[T]) FillIn(into T) error {
	var errs []error
	for _, s := range all {
		if s.Fill != nil {
			s.Fill(into)
		}
		if s.Check != nil {
			errs = append(errs, s.Check(into))
		}
	}
	return errors.Join(errs...)
}

// wordSetting completes a setting of one word. read makes a value of it; an error means that it is none.
func wordSetting[T any, V comparable](s Setting[T], expected string, field func(T) *V, read func(string) (V, error)) Setting[T] {
	s.Parse = func(handler T, d *caddyfile.Dispenser) error {
		text, err := Value(d, expected)
		if err != nil {
			return err
		}
		if *field(handler), err = read(text); err != nil {
			return d.Errf("%s %q: expected %s", s.Name, text, expected)
		}
		return nil
	}
	s.Fill = func(handler T) {
		usual, _ := read(s.Usual)
		*field(handler) = cmp.Or(*field(handler), usual)
	}
	return s
}

// DurationSetting is a duration from least to most. usual is its default, as a Caddyfile has it, or
// none.
func DurationSetting[T any](name, usual string, least, most time.Duration, field func(T) **caddy.Duration) Setting[T] {
	check := func(handler T) error {
		if *field(handler) == nil {
			return nil
		}
		value := time.Duration(**field(handler))
		if err := CheckDuration(name, value, least); err != nil || value <= most {
			return err
		}
		return fmt.Errorf("%s %s: expected a duration of at most %s, such as %s", name, value, most, usual)
	}
	read := func(text string) (*caddy.Duration, error) {
		value, err := caddy.ParseDuration(text)
		if err != nil {
			return nil, err
		}
		return new(caddy.Duration(value)), nil
	}
	return wordSetting(Setting[T]{Name: name, Syntax: "<duration>", Usual: usual, Check: check}, wantDuration(least), field, read)
}

// NumberSetting is a whole number.
func NumberSetting[T any](name, syntax string, usual int, allowed Range, field func(T) *int) Setting[T] {
	check := func(handler T) error { return allowed.Check(name, *field(handler)) }
	return wordSetting(Setting[T]{Name: name, Syntax: syntax, Usual: strconv.Itoa(usual), Check: check}, allowed.Want, field, strconv.Atoi)
}

// TextSetting is a text. usual is its default, if there is one.
func TextSetting[T any](name, syntax, usual, expected string, field func(T) *string, check func(T) error) Setting[T] {
	read := func(text string) (string, error) { return text, nil }
	return wordSetting(Setting[T]{Name: name, Syntax: syntax, Usual: usual, Check: check}, expected, field, read)
}

// OptionalText is a text that is not empty if it is there. Errors do not show it, since it may be a
// secret.
func OptionalText[T any](name, expected string, field func(T) *string) Setting[T] {
	return Setting[T]{Name: name, Parse: func(handler T, d *caddyfile.Dispenser) (err error) {
		if *field(handler), err = Value(d, expected); err == nil && *field(handler) == "" {
			err = d.Errf("%s: empty; expected %s", name, expected)
		}
		return err
	}}
}

// ListSetting is one text or more; none is the default.
func ListSetting[T any](name, syntax, expected string, field func(T) *[]string, check func(T) error) Setting[T] {
	return Setting[T]{Name: name, Syntax: syntax, Usual: "none", Check: check, Parse: func(handler T, d *caddyfile.Dispenser) error {
		if *field(handler) = d.RemainingArgs(); len(*field(handler)) == 0 {
			return d.Errf("%s: no value; expected %s", name, expected)
		}
		return nil
	}}
}

// ChoiceSetting is one of several words; the first is the default.
func ChoiceSetting[T any](name string, field func(T) *string, words ...string) Setting[T] {
	last := len(words) - 1
	expected := strings.Join(words[:last], ", ") + " or " + words[last]
	check := func(handler T) error {
		if word := *field(handler); !slices.Contains(words, word) {
			return fmt.Errorf("%s %q: expected %s", name, word, expected)
		}
		return nil
	}
	return TextSetting(name, strings.Join(words, "|"), words[0], expected, field, check)
}

// FlagSetting is on if it is there, and has no value.
func FlagSetting[T any](name string, field func(T) *bool) Setting[T] {
	return Setting[T]{
		Name: name, Usual: "off",
		Parse: func(handler T, d *caddyfile.Dispenser) error {
			if *field(handler) = true; d.NextArg() {
				return d.Errf("%s: unexpected %q; it has no value", name, d.Val())
			}
			return nil
		},
	}
}

// MethodsSetting lists request methods, separated by spaces or commas. A blank text means usual,
// which may be none.
func MethodsSetting[T any](name string, field func(T) *[]string, usual ...string) Setting[T] {
	check := func(handler T) error {
		for _, method := range *field(handler) {
			if strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
				return fmt.Errorf("%s: %q is not a request method; expected names such as GET, separated by spaces or commas", name, method)
			}
		}
		return nil
	}
	s := ListSetting(name, "<method...>", "request methods such as GET, separated by spaces or commas", field, check)
	s.Usual, s.Fill = cmp.Or(strings.Join(usual, " "), "none"), func(handler T) {
		if *field(handler) = normalMethods(*field(handler)); len(*field(handler)) == 0 {
			*field(handler) = usual
		}
	}
	parse := s.Parse
	s.Parse = func(handler T, d *caddyfile.Dispenser) error {
		err := parse(handler, d)
		*field(handler) = normalMethods(*field(handler))
		return err
	}
	return s
}

// normalMethods returns the methods, which are separated by spaces or commas, in upper case.
func normalMethods(texts []string) []string {
	text := strings.ReplaceAll(strings.Join(texts, " "), ",", " ")
	return strings.Fields(strings.ToUpper(text))
}

// SizeSetting is a number of bytes from least to most. want says these.
func SizeSetting[T any](name, usual string, least, most Size, want string, field func(T) **Size) Setting[T] {
	return Setting[T]{
		Name: name, Syntax: "<size>", Usual: usual,
		Parse: func(handler T, d *caddyfile.Dispenser) error {
			return Sizes(d, "a size such as "+usual, field(handler))
		},
		Fill:  func(handler T) { fillSize(field(handler), usual) },
		Check: func(handler T) error { return CheckSize(name, *field(handler), least, most, want) },
	}
}

// maxMemory is the most of a body that may be kept in memory.
const maxMemory = 1 << 30

// BufferSetting is how much of a request body is kept in memory, and then on disk. least is [Off]
// if that is allowed.
func BufferSetting[T any](least Size, memory, disk func(T) **Size) Setting[T] {
	const usual, usualDisk = "64KiB", "256MiB"
	expected, want := "a size such as "+usual+", and perhaps one on disk such as "+usualDisk, "from 0 to 1GiB, such as "+usual
	if least == Off {
		expected, want = expected+", or off", want+", or off, which is -1 in JSON"
	}
	return Setting[T]{
		Name: "buffer", Syntax: "<size> [<disk>]", Usual: usual + " " + usualDisk,
		Parse: func(handler T, d *caddyfile.Dispenser) error {
			*memory(handler), *disk(handler) = nil, nil
			return Sizes(d, expected, memory(handler), disk(handler))
		},
		Fill: func(handler T) {
			if fillSize(memory(handler), usual); **memory(handler) != Off {
				fillSize(disk(handler), usualDisk)
			}
		},
		Check: func(handler T) error {
			if size := *memory(handler); size != nil && *size == Off && least == Off && *disk(handler) != nil {
				return fmt.Errorf("buffer off: unexpected %d bytes on disk; nothing is kept there", **disk(handler))
			}
			return errors.Join(
				CheckSize("buffer", *memory(handler), least, maxMemory, want),
				CheckSize("buffer_disk", *disk(handler), 0, maxSize, "from 0 to 1TiB, such as "+usualDisk))
		},
	}
}

func fillSize(size **Size, usual string) {
	if *size == nil {
		value, _ := parseSize(usual)
		*size = &value
	}
}
