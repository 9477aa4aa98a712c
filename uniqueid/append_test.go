package uniqueid

import (
	"testing"
)

// A generator appends what it would make, in one text, and nothing is allocated for it.
func TestAppendNew(t *testing.T) {
	txids := NewTXIDGenerator()
	buf := make([]byte, 0, 100)
	for scheme, appendNew := range map[string]func([]byte) []byte{
		"txid":    txids.AppendNew,
		"uuid_v7": txids.AppendNewUUIDv7,
		"traceparent": func(dst []byte) []byte {
			dst, _ = NewTraceContext(txids.NewUUIDv7()).AppendText(dst)
			return dst
		},
	} {
		text := string(appendNew([]byte("id=")))
		if readings, err := Decode(text[3:]); err != nil || text[:3] != "id=" || readings[0].Scheme != scheme {
			t.Errorf("%s: appended %q, which is %+v, %v", scheme, text, readings, err)
		}
		if n := testing.AllocsPerRun(1000, func() { buf = appendNew(buf[:0]) }); n != 0 {
			t.Errorf("%s: appending allocates %v times", scheme, n)
		}
	}
}
