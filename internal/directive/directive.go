// Package directive parses the subdirectives of a Caddyfile directive strictly. A
// missing, empty, surplus or unknown word is an error that says what was expected, and
// where.
package directive

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Subdirective is one line in the block of a directive. Its setting is stored in a T. See
// [On].
type Subdirective[T any] struct {
	name  string
	parse func(T, *caddyfile.Dispenser) error
}

// On makes the subdirective with a name. parse gets a dispenser that is at the name.
func On[T any](name string, parse func(T, *caddyfile.Dispenser) error) Subdirective[T] {
	return Subdirective[T]{name, parse}
}

// Table lists the subdirectives of a directive, in the order of its documentation. A
// repeated subdirective overrides the earlier one.
type Table[T any] []Subdirective[T]

// ParseBlock parses a block into settings. The dispenser is at the word before the block. of
// is the name of the directive, for errors.
func (t Table[T]) ParseBlock(d *caddyfile.Dispenser, of string, settings T) error {
	if d.NextArg() {
		return Unexpected(d, of, "a block")
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := t.parse(d, of, settings); err != nil {
			return err
		}
	}
	return nil
}

func (t Table[T]) parse(d *caddyfile.Dispenser, of string, settings T) error {
	names := make([]string, len(t))
	for i, sub := range t {
		if sub.name == d.Val() {
			return sub.parse(settings, d)
		}
		names[i] = sub.name
	}
	expected := strings.Join(names, ", ")
	if len(names) > 1 {
		expected = "one of " + expected
	}
	return d.Errf("%s: unknown subdirective %s; expected %s", of, Quoted(d.Val()), expected)
}

// Quoted quotes a text for an error, unless it may be a URL or a login with a password. The
// name of a matcher, which begins with @, is neither.
func Quoted(text string) string {
	if strings.Contains(text, "://") || strings.LastIndex(text, "@") > 0 {
		return "(not shown, since it may have a password)"
	}
	return strconv.Quote(text)
}

// WantMatcher says what a matcher looks like, where one may be meant.
const WantMatcher = "a matcher begins with /, is * alone or begins with @, and stands first, after the directive"

// Unexpected is the error for a surplus word in the line of a directive.
func Unexpected(d *caddyfile.Dispenser, of, expected string) error {
	if strings.ContainsAny(d.Val(), "/*@") {
		expected += "; " + WantMatcher
	}
	return d.Errf("%s: unexpected argument %s; expected %s", of, Quoted(d.Val()), expected)
}

// Value parses the only value of a subdirective. It may be empty if it is quoted.
func Value(d *caddyfile.Dispenser, expected string) (string, error) {
	name := d.Val()
	if !d.NextArg() {
		return "", d.Errf("%s: no value; expected %s", name, expected)
	}
	text := d.Val()
	if d.NextArg() {
		return "", d.Errf("%s: unexpected %q after %q; expected %s", name, d.Val(), text, expected)
	}
	return text, nil
}

// OnText makes a subdirective with one text as its value, which must not be empty.
func OnText[T any](name, expected string, field func(T) *string) Subdirective[T] {
	return On(name, func(settings T, d *caddyfile.Dispenser) (err error) {
		*field(settings), err = Value(d, expected)
		if err == nil && *field(settings) == "" {
			err = d.Errf("%s: empty; expected %s", name, expected)
		}
		return err
	})
}

// OnSecret is OnText for a value of which errors show nothing.
func OnSecret[T any](name, expected string, field func(T) *string) Subdirective[T] {
	text := OnText(name, expected, field)
	return On(name, func(settings T, d *caddyfile.Dispenser) error {
		if n := d.CountRemainingArgs(); n != 1 {
			return d.Errf("%s: found %d values; expected %s", name, n, expected)
		}
		return text.parse(settings, d)
	})
}

// OnList makes a subdirective with any number of texts as its values.
func OnList[T any](name string, field func(T) *[]string) Subdirective[T] {
	return On(name, func(settings T, d *caddyfile.Dispenser) error {
		*field(settings) = d.RemainingArgs()
		return nil
	})
}

// Flag parses a subdirective that has no value.
func Flag(d *caddyfile.Dispenser) error {
	if name := d.Val(); d.NextArg() {
		return d.Errf("%s: unexpected %q; it has no value", name, d.Val())
	}
	return nil
}

// Range is what a whole number may be: from Least to Most. Want says so.
type Range struct {
	Least, Most int
	Want        string
}

// AtLeast is the range of all numbers from least on.
func AtLeast(least int) Range {
	return Range{least, math.MaxInt, fmt.Sprintf("a whole number, %d or more", least)}
}

// Parse parses a number in the range.
func (r Range) Parse(d *caddyfile.Dispenser) (int, error) {
	name := d.Val()
	text, err := Value(d, r.Want)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, d.Errf("%s %q: expected %s", name, text, r.Want)
	}
	return n, In(d, r.Check(name, n))
}

// Check returns an error for a number outside of the range.
func (r Range) Check(name string, n int) error {
	if n < r.Least || n > r.Most {
		return fmt.Errorf("%s %d: expected %s", name, n, r.Want)
	}
	return nil
}

// In adds the file and line of the Caddyfile to the front of an error, if there is one.
func In(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}
