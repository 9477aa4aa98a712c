package command

import (
	"strings"
	"unicode"
)

// Printable is a text from a file's name or content, without what a terminal
// would obey.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}
