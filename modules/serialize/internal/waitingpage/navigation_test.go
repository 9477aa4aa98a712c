package waitingpage

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A request that is no navigation waits with an open connection, whatever it accepts.
func TestPageIsForNavigations(t *testing.T) {
	const navigation = "text/html,application/xhtml+xml,*/*;q=0.8"
	for _, test := range []struct {
		method string
		header []string // names and values in turn
		serves bool
	}{
		{"GET", []string{"Accept", navigation, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, true},
		{"GET", []string{"Accept", "text/html"}, true}, // an old browser
		{"GET", []string{"Accept", navigation, "Sec-Fetch-Mode", "navigate", "X-Requested-With", "org.example.app"}, true},
		{"POST", []string{"Accept", navigation, "Sec-Fetch-Mode", "navigate"}, false},
		{"HEAD", []string{"Accept", navigation, "Sec-Fetch-Mode", "navigate"}, false},
		{"GET", nil, false},
		{"GET", []string{"Accept", "*/*"}, false},
		{"GET", []string{"Accept", "application/json"}, false},
		{"GET", []string{"Accept", "text/html", "Sec-Fetch-Mode", "cors"}, false},
		{"GET", []string{"Accept", "text/html", "Sec-Fetch-Mode", "no-cors"}, false},
		{"GET", []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, false},
		{"GET", []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate", "Sec-Purpose", "prefetch"}, false},
		// Bug: over plain HTTP, where browsers do not send Sec-Fetch-Mode, these got the page.
		{"GET", []string{"Accept", "text/html", "X-Requested-With", "XMLHttpRequest"}, false},
		{"GET", []string{"Accept", "text/html", "HX-Request", "true"}, false},
		{"GET", []string{"Accept", "text/html", "Turbo-Frame", "messages"}, false},
		{"GET", []string{"Accept", "text/html", "X-PJAX", "true"}, false},
		{"GET", []string{"Accept", "text/html", "X-Moz", "prefetch"}, false},
		{"GET", []string{"Accept", "text/html", "Purpose", "prefetch"}, false},
		{"GET", []string{"Accept", "text/html", "X-Purpose", "preview"}, false},
		{"GET", []string{"Accept", "text/html", "Sec-Purpose", "prefetch"}, false},
	} {
		r := httptest.NewRequest(test.method, "/", http.NoBody)
		for i := 0; i < len(test.header); i += 2 {
			r.Header.Set(test.header[i], test.header[i+1])
		}
		if serves := (&Line{Page: new(Page)}).Serves(r); serves != test.serves {
			t.Errorf("%s %q gets the page: %t; expected %t", test.method, test.header, serves, test.serves)
		}
	}
}
