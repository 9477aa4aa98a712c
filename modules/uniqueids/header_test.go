package uniqueids

import (
	"strings"
	"testing"
)

// A field or a kind that there is not is refused in JSON, too.
func TestHeaderErrors(t *testing.T) {
	for _, h := range []Header{{}, {Field: "a b"}, {Field: "Host"}, {Field: "X-A", Kind: "TXID"}, {Field: "tracestate", Kind: "trace_id"}} {
		if err := h.provision(); err == nil || !strings.HasPrefix(err.Error(), "header ") || !strings.Contains(err.Error(), "expected ") {
			t.Errorf("%+v: %v", h, err)
		}
	}
}
