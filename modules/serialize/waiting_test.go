package serialize

import (
	"net/http"
	"strings"
	"testing"
)

func TestParseWaitingCookie(t *testing.T) {
	secret := strings.Repeat("A", 22)
	for value, want := range map[string]bool{
		secret: true, secret + ".12": true, secret + ".": true, "": false, secret[1:]: false, secret + "A": false, secret + ".x": false,
		secret + ".-1": false, secret + ".1.2": false, "." + secret: false, secret + ".99999999999999999999": false,
	} {
		if _, _, ok := parseWaitingCookie(value); ok != want {
			t.Errorf("%q: %t; expected %t", value, ok, want)
		}
	}
}

func TestAcceptsHTML(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "text/*": false, "text/html": true, "TEXT/HTML;q=0.1": true, "text/html;q=0": false,
		"application/json, text/html;level=1": true, "text/htmlx": false,
	} {
		if got := acceptsHTML([]string{accept}); got != want {
			t.Errorf("%q: %t; expected %t", accept, got, want)
		}
	}
	if acceptsHTML(http.Header{}.Values("Accept")) {
		t.Error("no Accept header: true; expected false")
	}
}
