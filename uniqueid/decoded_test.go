package uniqueid

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"cbpvimguo4hkaps9lf6g", []string{`{"scheme":"txid","time":"2023-11-14T22:13:20.123Z","fields":{"random":"0123456789abcd","uuid_v7_first":"018bcfe5-687b-7048-b456-789abcd00000","uuid_v7_last":"018bcfe5-687b-7048-b456-789abcdfffff"}}`}},
		{"018bcfe5-687b-7048-b456-789abcd54321", []string{`{"scheme":"uuid_v7","time":"2023-11-14T22:13:20.123Z","fields":{"more":"54321","random":"0123456789abcd","trace_id":"018bcfe5687b7048b456789abcd54321","txid":"cbpvimguo4hkaps9lf6g"}}`}},
		// Bug: it had no JSON.
		{"ffffffff-ffff-7fff-bfff-ffffffffffff", []string{`{"scheme":"uuid_v7","note":"the time is in the future, so the text may be another kind of ID","time":"10889-08-02T05:31:50.655Z","fields":{"more":"fffff","random":"3fffffffffffff","trace_id":"ffffffffffff7fffbfffffffffffffff"}}`}},
		{"00-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-03", []string{`{"scheme":"traceparent","note":"one in 64 random trace IDs looks like a UUIDv7","time":"2023-11-14T22:13:20.123Z","fields":{"flags":"03","parent_id":"00f067aa0ba902b7","trace_id":"018bcfe5687b7048b456789abcd54321","txid":"cbpvimguo4hkaps9lf6g","uuid_v7":"018bcfe5-687b-7048-b456-789abcd54321","version":"00"}}`}},
		{"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more", []string{`{"scheme":"traceparent","fields":{"flags":"00","parent_id":"00f067aa0ba902b7","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","version":"01"}}`}},
		{"4bf92f3577b34da6a3ce929d0e0e4736", []string{`{"scheme":"trace_id","fields":{"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"}}`}},
		{"018bcfe5687b7048b456789abcd54321", []string{`{"scheme":"trace_id","note":"one in 64 random trace IDs looks like a UUIDv7","time":"2023-11-14T22:13:20.123Z","fields":{"trace_id":"018bcfe5687b7048b456789abcd54321","txid":"cbpvimguo4hkaps9lf6g","uuid_v7":"018bcfe5-687b-7048-b456-789abcd54321"}}`}},
		{"PFobLMCoAQoAADA5AQI", []string{`{"scheme":"unique_id","layout":"classic","note":"address and pid are random bits if the node was random, which an ID does not tell","time":"2002-02-01T04:35:56Z","fields":{"address":"192.168.1.10","counter":258,"extra":0,"pid":12345}}`}},
		{"W4kEeX8AAQEAAHUu-mgAAAAA", []string{`{"scheme":"unique_id","layout":"threaded","note":"address and pid are random bits if the node was random, which an ID does not tell","time":"2018-08-31T09:03:53Z","fields":{"address":"127.0.1.1","counter":65128,"pid":29998,"thread":0}}`}},
		{"ZFJGec8R3U_ldaMTbxzC3wAAAAM", []string{`{"scheme":"unique_id","layout":"modern","time":"2023-05-03T11:33:13Z","fields":{"counter":49887,"root":"cf11dd4fe575a3136f1c","thread":3}}`}},
		{"ZFJGec8R3U-ldaMTb@zC3wAAAAM", []string{`{"scheme":"unique_id","layout":"modern","note":"in the alphabet of Apache 2.4.29 to 2.4.46","time":"2023-05-03T11:33:13Z","fields":{"counter":49887,"root":"cf11dd4fe575a3136fec","thread":3}}`}},
		// With a - and neither @ nor _, a modern ID can be of either alphabet. Bug:
		// only today's was named.
		{"ZFJGec8R3U-ldaMTbxzC3wAAAAM", []string{
			`{"scheme":"unique_id","layout":"modern","time":"2023-05-03T11:33:13Z","fields":{"counter":49887,"root":"cf11dd4fa575a3136f1c","thread":3}}`,
			`{"scheme":"unique_id","layout":"modern","note":"in the alphabet of Apache 2.4.29 to 2.4.46","time":"2023-05-03T11:33:13Z","fields":{"counter":49887,"root":"cf11dd4fe575a3136f1c","thread":3}}`,
		}},
		// Bug: random bits in the node were printed as an address, even if they
		// could not be one.
		{"PFobLP@oAQoAADA5AQI", []string{`{"scheme":"unique_id","layout":"classic","note":"the node is random bits, for it is no address and pid","time":"2002-02-01T04:35:56Z","fields":{"counter":258,"node":"ffa8010a00003039"}}`}},
		{"W4kEeX8AAQEAQHUu-mgAAAAA", []string{`{"scheme":"unique_id","layout":"threaded","note":"the node is random bits, for it is no address and pid","time":"2018-08-31T09:03:53Z","fields":{"counter":65128,"node":"7f0001010040752e","thread":0}}`}},
		{"39f3c4aa5c7f2c2d33", []string{`{"scheme":"sharded_id","time":"2009-09-08T02:56:50.798003Z","fields":{"random":"9f3c","shard":3}}`}},
		{"03KOE60u", []string{`{"scheme":"call_number","fields":{"run":8452,"sequence":11827,"version":0}}`}},
		// Bug: IDs of rs/xid, which look like txids of the future, were read without a doubt.
		{"vthknin0000000000000", []string{`{"scheme":"txid","note":"the time is in the future, so the text may be another kind of ID","time":"2109-01-13T14:24:48Z","fields":{"random":"00000000000000","uuid_v7_first":"03fd8d2f-2b80-7000-8000-000000000000","uuid_v7_last":"03fd8d2f-2b80-7000-8000-0000000fffff"}}`}},
		// A snowflake, which looks like a sharded_id of any year.
		{"1541815603606036480", []string{
			`{"scheme":"sharded_id","time":"2015-09-24T02:30:56.222336Z","fields":{"random":"4181","shard":15}}`,
			`{"scheme":"unique_id","layout":"classic","note":"address and pid are random bits if the node was random, which an ID does not tell; the time is in the future, so the text may be another kind of ID","time":"2084-08-18T20:45:39Z","fields":{"address":"94.122.211.126","counter":58317,"extra":723,"pid":2838010}}`,
		}},
		// The alphabets overlap.
		{"1000004aa5c7f2c2d4g", []string{`{"scheme":"unique_id","layout":"classic","note":"address and pid are random bits if the node was random, which an ID does not tell; the time is in the future, so the text may be another kind of ID","time":"2084-06-18T10:07:15Z","fields":{"address":"78.26.107.151","counter":30600,"extra":237,"pid":4155190}}`}},
		{"1000004aa5c7f2c2d48", []string{
			`{"scheme":"sharded_id","time":"2009-09-08T02:56:50.798024Z","fields":{"random":"0000","shard":10}}`,
			`{"scheme":"unique_id","layout":"classic","note":"address and pid are random bits if the node was random, which an ID does not tell; the time is in the future, so the text may be another kind of ID","time":"2084-06-18T10:07:15Z","fields":{"address":"78.26.107.151","counter":30607,"extra":237,"pid":4155190}}`,
		}},
		{"19900004aa5c7f2c2d50", []string{
			`{"scheme":"sharded_id","time":"2009-09-08T02:56:50.798032Z","fields":{"random":"0000","shard":199}}`,
			`{"scheme":"txid","note":"the time is before the year 2000, so the text may be another kind of ID","time":"1975-08-15T02:26:58.705Z","fields":{"random":"128ac3bc4c134a","uuid_v7_first":"00294800-0011-74a2-ac3b-c4c134a00000","uuid_v7_last":"00294800-0011-74a2-ac3b-c4c134afffff"}}`,
		}},
	} {
		readings, err := Decode(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		var got []string
		for _, reading := range readings {
			text, err := json.Marshal(reading)
			if err != nil {
				t.Error(err)
			}
			got = append(got, string(text))
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\n is %s\nnot %s", tt.text, strings.Join(got, "\n    "), strings.Join(tt.want, "\n    "))
		}
	}
}

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
		if _, err := ParseTraceContext(text); err == nil {
			parsed++
		}
		for _, reading := range readings {
			if strings.Contains(reading.Note, "alphabet") { // its parser reads that of today
				parsed++
			}
			if _, err := json.Marshal(reading); err != nil || len(reading.Fields) == 0 {
				t.Errorf("%q: %+v, %v", text, reading, err)
			}
		}
		if parsed != len(readings) {
			t.Errorf("%q: %d parsers read it, Decode %d", text, parsed, len(readings))
		}
	})
}
