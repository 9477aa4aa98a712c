package serialize

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// Bug: a configuration that set the variable orderly.serialize behind a queue made every
// later use of the queue's placeholders panic.
func TestPlaceholdersWithOverwrittenVariable(t *testing.T) {
	v := new(visit)
	v.about.Queue = "a_"
	repl, vars := caddy.NewReplacer(), make(map[string]any)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	v.register(r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl)), vars)
	for _, value := range []any{v, "x", nil} {
		vars[visitsVar] = value
		if got := repl.ReplaceAll("{http.serialize.queue}", ""); got != "a_" {
			t.Errorf("with %v, the placeholder is %q", value, got)
		}
	}
}
