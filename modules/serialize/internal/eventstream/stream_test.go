package eventstream

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What follows a comment is an event stream that nobody has encoded, or one event. Bug: clients got an event
// in place of a stream with `Content-Encoding: none`, which many write so that nobody encodes it.
func TestWhatFollows(t *testing.T) {
	for _, test := range []struct {
		kind, encoding string
		status         int
		follows        bool
	}{
		{"text/event-stream", "", 200, true},
		{" Text/Event-Stream ; charset=utf-8", "Identity", 299, true},
		{"text/event-stream", "none", 200, true},
		{"text/event-stream", "gzip", 200, false},
		{"text/event-stream", "", 302, false},
		{"text/event-streams", "", 200, false},
		{"", "", 200, false},
	} {
		w := httptest.NewRecorder()
		s := New(w)
		if err := s.Comment(httptest.NewRequest(http.MethodGet, "/", http.NoBody), "waiting"); err != nil && !errors.Is(err, http.ErrNotSupported) {
			t.Fatal(err)
		}
		s.Header().Set("Content-Type", test.kind)
		s.Header().Set("Content-Encoding", test.encoding)
		s.WriteHeader(http.StatusEarlyHints)
		s.WriteHeader(test.status)
		_, err := s.Write([]byte("data: a\n\n"))
		followed := err == nil && strings.HasSuffix(w.Body.String(), "\n\ndata: a\n\n")
		if s.Follows() != test.follows || followed != test.follows || (s.End(nil, "") == nil) != test.follows {
			t.Errorf("%+v: the client gets %q, %v", test, w.Body, err)
		}
	}
}
