package uniqueid

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// texts are where fuzzing starts: an ID of every kind, and texts that are
// nearly one.
var texts = []string{
	"", "x",
	"cbpvimguo4hkaps9lf6g", "vvvvvvvvvvvvvvvvvvvg", "00000000000000000000", "vvvvvvvvvvvvvvvvvvvv",
	"PFobLMCoAQoAADA5AQI", "------------------8", "-------------------",
	"O5rKAMCoAQoAADA5@@-7777-", "W4kEeX8AAQEAAHUu-mgAAAAA",
	"ZVPxAAARIjNEVWZ3iJmrzQAAAAc", "ZFJGec8R3U-ldaMTb@zC3wAAAAM", "ZFJGec8R3U_ldaMTbxzC3wAAA\r\n",
	"39f3c4aa5c7f2c2d33", "1000004aa5c7f2c2d4a", "99999900004aa5c7f2f423f",
	"018bcfe5-687b-7048-b456-789abcd54321", "ffffffff-ffff-7fff-bfff-ffffffffffff", "018bcfe5-687b-4048-b456-789abcd54321",
	"018BCFE5-687B-7048-B456-789ABCD54321", "018BCFE5687B7048B456789ABCD54321", "dc5lc7t1mb1h1o80nrng",
	"018bcfe5687b7048b456789abcd54321", "4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000",
	"00-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-03", "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
	"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
	"00000000", "2VznWE2i", "dxlGgaI3", "dxlGgaI4", "zzzzzzzz",
}

// A text is read as something that writes the same text, or is refused with an error of the
// right kind. Only a future version of traceparent is written as another, and a UUID in lower
// case.
func FuzzParse(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for scheme, parse := range parsers {
			id, err := parse(text)
			if err == nil {
				read := text
				if scheme == "uuid_v7" {
					read = strings.ToLower(text)
				}
				if back := fmt.Sprint(id); back != read && (scheme != "traceparent" || back[2:] != text[2:traceparentLen]) {
					t.Errorf("%q is read as the %s %q", text, scheme, back)
				}
				continue
			}
			parseErr, ok := errors.AsType[*ParseError](err)
			if !ok || parseErr.Offset >= max(len(text), 1) || parseErr.Want == "" || parseErr.Found == "" {
				t.Errorf("%q: error is %#v", text, err)
			}
			if strings.ContainsAny(err.Error(), "\n\r\x00") {
				t.Errorf("%q: error %q is not for one line", text, err)
			}
		}
	})
}

// Decode finds a kind in a text if and only if the parser of that kind reads
// the text.
func FuzzDecode(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		readings, err := Decode(text)
		if (err == nil) == (len(readings) == 0) {
			t.Errorf("%q: %d readings and %v", text, len(readings), err)
		}
		parsed := 0
		for _, scheme := range []string{"txid", "unique_id", "sharded_id", "call_number", "uuid_v7", "trace_id"} {
			if _, err := parsers[scheme](text); err == nil {
				parsed++
			}
		}
		if _, err := ParseTraceContext(text); err == nil && len(text) <= longestTraceparent {
			parsed++
		}
		for _, reading := range readings {
			// Their parsers read the alphabet of today, and UUIDs with hyphens.
			if strings.Contains(reading.Note, "alphabet") || reading.Scheme == "uuid_v7" && len(text) == traceIDTextLen {
				parsed++
			}
			if _, err := reading.MarshalJSON(); err != nil || reading.Text != text || len(reading.Fields) == 0 {
				t.Errorf("%q: %+v, %v", text, reading, err)
			}
		}
		if parsed != len(readings) {
			t.Errorf("%q: %d parsers read it, Decode %d", text, parsed, len(readings))
		}
	})
}
