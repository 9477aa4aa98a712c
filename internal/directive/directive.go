// Package directive parses the subdirectives of a Caddyfile directive strictly. A
// missing, empty, surplus or unknown word is an error that says what was expected, and
// where.
package directive

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
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
		return d.Errf("%s: unexpected argument %q; expected a block", of, d.Val())
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
	return d.Errf("%s: unknown subdirective %q; expected %s", of, d.Val(), expected)
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

// Checked parses the only value of a subdirective, for which check must return nil.
func Checked(d *caddyfile.Dispenser, expected string, check func(string) error) (string, error) {
	text, err := Value(d, expected)
	if err != nil {
		return "", err
	}
	return text, In(d, check(text))
}

// Duration parses a duration of 0 or more.
func Duration(d *caddyfile.Dispenser) (caddy.Duration, error) {
	const expected = "a duration of 0 or more with a unit, such as 60s or 5m"
	name := d.Val()
	text, err := Value(d, expected)
	if err != nil {
		return 0, err
	}
	duration, err := caddy.ParseDuration(text)
	if err != nil {
		return 0, d.Errf("%s %q: expected %s", name, text, expected)
	}
	return caddy.Duration(duration), In(d, CheckDuration(name, duration))
}

// CheckDuration returns an error for a negative duration.
func CheckDuration(name string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%s %s: expected a duration of 0 or more, such as 60s", name, d)
	}
	return nil
}

// Count parses a whole number that is at least least.
func Count(d *caddyfile.Dispenser, least int) (int, error) {
	name, expected := d.Val(), "a whole number, "+strconv.Itoa(least)+" or more"
	text, err := Value(d, expected)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, d.Errf("%s %q: expected %s", name, text, expected)
	}
	return n, In(d, CheckCount(name, n, least))
}

// CheckCount returns an error for a number below least.
func CheckCount(name string, n, least int) error {
	if n < least {
		return fmt.Errorf("%s %d: expected a whole number, %d or more", name, n, least)
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
