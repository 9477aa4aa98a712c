package serialize

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// Bug: gRPC-Web, and all other types that begin like gRPC, counted as a
// dialogue: their bodies were not read before the ticket.
func TestDialogues(t *testing.T) {
	for _, c := range []struct {
		method, contentType string
		want                bool
	}{
		{"CONNECT", "", true},
		{"POST", "", false},
		{"POST", "application/grpc", true},
		{"POST", "Application/gRPC", true},
		{"POST", "application/grpc+proto", true},
		{"POST", "application/grpc+json; charset=utf-8", true},
		{"POST", "application/grpc;charset=utf-8", true},
		{"POST", "application/grpc ; a=b", true},
		{"POST", "application/grpc-web", false},
		{"POST", "application/grpc-web+proto", false},
		{"POST", "application/grpc-web-text", false},
		{"POST", "application/grpcs", false},
		{"POST", "application/json; a=application/grpc", false},
	} {
		r := httptest.NewRequest(c.method, "http://a.example/", strings.NewReader("x"))
		r.Header.Set("Content-Type", c.contentType)
		if got := isDialogue(r); got != c.want {
			t.Errorf("%s with %q: %v", c.method, c.contentType, got)
		}
	}
}
