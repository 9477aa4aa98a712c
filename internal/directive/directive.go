// Package directive parses the subdirectives of a Caddyfile directive strictly. A
// missing, empty, surplus or unknown word is an error that says what was expected, and
// where.
package directive

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

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
func Value(d *caddyfile.Dispenser, expected string) (text string, err error) {
	err = Values(d, 1, expected, &text)
	return text, err
}

// Values parses the values of a subdirective into texts: at least as many as least says, and at most
// one for each text. Texts without a value become empty.
func Values(d *caddyfile.Dispenser, least int, expected string, into ...*string) error {
	name, values := d.Val(), d.RemainingArgs()
	if len(values) < least || len(values) > len(into) {
		return d.Errf("%s: found %d values; expected %s", name, len(values), expected)
	}
	for i, value := range append(values, make([]string, len(into)-len(values))...) {
		*into[i] = value
	}
	return nil
}

// Range is what a whole number may be: from Least to Most, or one of Only. Want says so.
type Range struct {
	Least, Most int
	Only        []int // nil allows the whole range
	Want        string
}

// AtLeast is the range of all numbers from least on.
func AtLeast(least int) Range {
	return Range{Least: least, Most: math.MaxInt, Want: fmt.Sprintf("a whole number, %d or more", least)}
}

// Check returns an error for a number outside of the range.
func (r Range) Check(name string, n int) error {
	if n < r.Least || n > r.Most || r.Only != nil && !slices.Contains(r.Only, n) {
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
