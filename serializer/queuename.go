package serializer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// The length of the longest queue name, and of the part of a longer name that is kept
// before its hash. With the digits and the longest address, a lock file's name stays
// below the 255 bytes that file systems allow.
const (
	maxQueueName  = 150
	keptQueueName = 80
	cutMark       = "%~" // follows the part that is kept
)

// ReservedPrefix begins the names of the files that are no tickets in a directory of lock
// files. No queue's name begins with it.
const ReservedPrefix = ".orderly-"

// QueueName turns any text into a name that is safe as the start of a file name.
// Different texts have different names. Letters, digits, spaces and most ASCII symbols
// stay as they are. Symbols with a meaning in paths, control characters, and everything
// beyond ASCII become %XX, and so does the dot of ".orderly-" at the start. "%!" follows a
// last digit that makes the name ambiguous (see [AmbiguousQueueName]).
//
// A name longer than 150 bytes is cut to at most 80. "%~", the first 128 bits of the
// text's SHA-256 in hexadecimal, and "_" follow. [Matches] knows that.
func QueueName(text string) string {
	if plainQueueName(text) {
		return text
	}
	name := escapeQueueName(text)
	if AmbiguousQueueName(name) { // perhaps only because of an escape's digits
		name += "%!"
	}
	if len(name) <= maxQueueName {
		return name
	}
	kept := name[:keptQueueName]
	if i := strings.LastIndexByte(kept, '%'); i > keptQueueName-3 {
		kept = kept[:i] // do not cut an escape in half
	}
	return kept + cutMark + hashOf(text) + "_"
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func plainQueueName(text string) bool {
	return len(text) <= maxQueueName && !AmbiguousQueueName(text) && !strings.HasPrefix(text, ReservedPrefix) && !strings.ContainsFunc(text, mustEscape)
}

func escapeQueueName(text string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if mustEscape(rune(c)) || i == 0 && strings.HasPrefix(text, ReservedPrefix) {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// QueueNames returns the name, with a * at the end, that stands for all queues whose texts
// begin with a text; see [Matches]. Of queues whose names were cut, it is exact up to 80
// bytes: a longer one stands for all that may begin so.
func QueueNames(start string) string { return escapeQueueName(start) + "*" }

// Matches reports whether a name stands for a queue. One that ends in * stands for all
// queues whose names begin so, before they were cut.
func Matches(name, queue string) bool {
	start, all := strings.CutSuffix(name, "*")
	kept, _, isCut := strings.Cut(queue, cutMark)
	if isSlotQueue(queue) {
		return false
	}
	return queue == name || all && (strings.HasPrefix(queue, start) || isCut && len(start) > keptQueueName && strings.HasPrefix(start, kept))
}

// CheckQueueName returns why no queue can have a name, on any store: an error that wraps
// [ErrQueueName], or nil. All names by [QueueName] will do, and so does the empty one. Those that
// begin with %= are for slots: lists do not show these, and no pause reaches them.
func CheckQueueName(name string) error {
	switch {
	case len(name) > maxQueueName:
		return badQueueName(name, fmt.Sprintf("is longer than %d bytes", maxQueueName))
	case AmbiguousQueueName(name):
		return badQueueName(name, "ends in four zeros and a digit")
	}
	return checkStart(name)
}

// checkStart returns why no queue's name can begin with a text, or nil.
func checkStart(text string) error {
	if strings.HasPrefix(text, ReservedPrefix) {
		return badQueueName(text, "begins with "+ReservedPrefix)
	}
	if i := strings.IndexFunc(text, func(c rune) bool { return c != '%' && mustEscape(c) }); i >= 0 {
		return badQueueName(text, fmt.Sprintf("has the byte %q", text[i]))
	}
	return nil
}

func badQueueName(name, why string) error {
	return fmt.Errorf("%w: %.150q %s; QueueName turns any text into a name", ErrQueueName, name, why)
}

// mustEscape takes bytes, too: those beyond ASCII must all be escaped.
func mustEscape(c rune) bool {
	return c < ' ' || c > '~' || strings.ContainsRune(`/\%:*?"<>|`, c)
}

// AmbiguousQueueName reports whether the text ends in four zeros and a digit. In the
// name of a lock file, these could be taken for the start of a timestamp.
func AmbiguousQueueName(text string) bool {
	n := len(text)
	return n >= 5 && text[n-5:n-1] == "0000" && text[n-1] >= '0' && text[n-1] <= '9'
}
