package uniqueid

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Decode returns every possible reading of text. Most texts have one. Some have two,
// because the alphabets overlap. A sharded_id with a two-digit shard looks like a
// classic unique_id, and one with a three-digit shard like a txid. A - in a modern
// unique_id was another digit before Apache 2.4.47. 32 hexadecimal digits are a trace
// ID, and may be a UUIDv7 without its hyphens.
//
// The readings come in a fixed order, the most likely first. If there is none, the
// error contains a [*ParseError] for every scheme whose length matches, or one about
// the length.
func Decode(text string) ([]Decoded, error) {
	var found []Decoded
	var errs []error
	for _, r := range readings {
		if len(text) < r.shortest || len(text) > r.longest {
			continue
		}
		decoded, err := r.decode(text)
		if errors.Is(err, errSameReading) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		decoded.Text, decoded.Scheme = text, r.scheme
		found = append(found, decoded)
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	}
	return nil, lengthError("id", text, allLengths())
}

// reading is one way to read a text.
type reading struct {
	shortest, longest int // in characters
	// alphabet is the number of different characters.
	alphabet int
	// decode returns all but the text and the scheme.
	decode func(string) (Decoded, error)
}

// schemeReading is a reading with the scheme of its kind.
type schemeReading struct {
	reading
	scheme string
}

// readings are the readings of all kinds, the most likely first. A text in a small
// alphabet is seldom a text in a larger alphabet by chance.
var readings = func() (all []schemeReading) {
	for _, kind := range kinds {
		for _, r := range kind.readings {
			all = append(all, schemeReading{r, kind.Scheme})
		}
	}
	slices.SortStableFunc(all, func(a, b schemeReading) int { return cmp.Compare(a.alphabet, b.alphabet) })
	return all
}()

// errSameReading means that another decoder has the same to say, or more.
var errSameReading = errors.New("another reading says as much")

// allLengths lists the numbers of characters of all kinds.
func allLengths() string {
	var lengths []string
	for _, kind := range kinds {
		lengths = append(lengths, kind.characters+" ("+kind.Scheme+")")
	}
	last := len(lengths) - 1
	return strings.Join(lengths[:last], ", ") + " or " + lengths[last] + " characters"
}
