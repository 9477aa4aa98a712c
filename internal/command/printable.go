package command

import (
	"strings"
	"unicode"
)

// Printable returns text from a file's name or content without characters that control a
// terminal.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}
