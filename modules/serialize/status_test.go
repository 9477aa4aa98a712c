package serialize

import "testing"

func TestPrefersJSON(t *testing.T) {
	for accept, want := range map[string]bool{
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
		if got := prefersJSON([]string{accept}); got != want {
			t.Errorf("Accept: %s: prefers JSON: %t; expected %t", accept, got, want)
		}
	}
}
