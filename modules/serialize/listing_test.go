package serialize

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// hostile is a request of a client that wants to harm the people who list it.
type hostile struct{}

func (hostile) Request() serializer.Request {
	return serializer.Request{Method: "GET\x1b[2J", Host: "\u009b31m" + strings.Repeat("h", 9000), Path: "/" + strings.Repeat("ä\u202e", 9000)}
}

// Bug: a list had paths of any length, and characters that control a terminal.
func TestListsAreHarmless(t *testing.T) {
	shared := share(t, "test:hostile", inMemory("/hostile"))
	shared.Join(serializer.Arrival{Queue: "a_", Requester: hostile{}}, func(turn serializer.Turn, _ error) { <-t.Context().Done(); turn.Leave() })
	r := listQueues(t.Context(), shared)[0].Tickets[0].Request
	for _, text := range []string{r.Method, r.Host, r.Path} {
		if n := utf8.RuneCountInString(text); n > 256 || strings.ContainsAny(text, "\x1b\u009b\u202e") {
			t.Errorf("listed with %d characters: %q", n, text)
		}
	}
	if n := utf8.RuneCountInString(r.Path); n != 256 || !strings.HasSuffix(r.Path, "…") {
		t.Errorf("the path has %d characters; expected the first 255 and an ellipsis", n)
	}
}
