package uniqueid

import (
	"testing"
)

// The text of a new ID is appended in one piece, and nothing is allocated for it.
func TestAppendText(t *testing.T) {
	txids := NewTXIDGenerator()
	buf := make([]byte, 0, 100)
	for scheme, appendNew := range map[string]func([]byte) ([]byte, error){
		"txid":        func(dst []byte) ([]byte, error) { return txids.New().AppendText(dst) },
		"uuid_v7":     func(dst []byte) ([]byte, error) { return txids.NewUUIDv7().AppendText(dst) },
		"traceparent": func(dst []byte) ([]byte, error) { return NewTraceContext(txids.NewUUIDv7()).AppendText(dst) },
	} {
		appended, _ := appendNew([]byte("id="))
		text := string(appended)
		if readings, err := Decode(text[3:]); err != nil || text[:3] != "id=" || readings[0].Scheme != scheme {
			t.Errorf("%s: appended %q, which is %+v, %v", scheme, text, readings, err)
		}
		if n := testing.AllocsPerRun(1000, func() { buf, _ = appendNew(buf[:0]) }); n != 0 {
			t.Errorf("%s: appending allocates %v times", scheme, n)
		}
	}
}
