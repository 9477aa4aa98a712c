package webpage

import "testing"

func TestQuality(t *testing.T) {
	for accept, json := range map[string]bool{ // whether JSON is preferred to HTML
		"":                                    false,
		"*/*":                                 false,
		"application/json":                    true,
		"text/html,application/json":          false,
		"text/html;q=0.5, application/json":   true,
		"application/*, text/html;q=0.9":      true,
		"text/html, */*;q=0.8":                false,
		"application/json;q=0, */*":           false,
		"application/json; charset=utf-8":     true,
		"Application/JSON;Q=0.3":              true,
		"text/html,application/xhtml+xml,*/*": false,
	} {
		header := []string{accept}
		if got := Quality(header, "application/json") > Quality(header, "text/html"); got != json {
			t.Errorf("Accept: %s: prefers JSON: %t; expected %t", accept, got, json)
		}
	}
}
