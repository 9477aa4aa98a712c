//go:build unix

package integration_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Each file in caddyfile_adapt is a Caddyfile, ten dashes, and the JSON that it
// is adapted to, or the error in full.
const (
	adaptDir  = "caddyfile_adapt"
	adaptLine = "----------"
)

func TestCaddyfileAdapt(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(adaptDir, "*.caddyfiletest"))
	check(t, err)
	if len(files) == 0 {
		t.Fatal("no files to test")
	}
	c := start(t, setup{})
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			check(t, err)
			caddyfile, want, ok := strings.Cut(string(text), adaptLine)
			if !ok {
				t.Fatalf("no line of ten dashes")
			}
			got, want := c.adapt(caddyfile), strings.TrimSpace(want)
			if strings.HasPrefix(got, "{") && strings.HasPrefix(want, "{") {
				var gotValue, wantValue any
				decodeInto(t, got, &gotValue)
				if decodeInto(t, want, &wantValue); reflect.DeepEqual(gotValue, wantValue) {
					return
				}
			}
			if got != want {
				t.Errorf("adapted to\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// adapt returns what a Caddyfile is adapted to, or the error.
func (c *caddy) adapt(caddyfile string) string {
	c.t.Helper()
	r := c.API("POST", "/adapt", caddyfile, "Content-Type", "text/caddyfile")
	if r.Err != nil {
		c.t.Fatal(r.Err)
	}
	var answer struct {
		Result json.RawMessage
		Error  string
	}
	check(c.t, json.Unmarshal([]byte(r.Text), &answer))
	if r.StatusCode != http.StatusOK {
		return answer.Error
	}
	return string(answer.Result)
}

func decodeInto(t testing.TB, text string, value any) {
	t.Helper()
	check(t, json.Unmarshal([]byte(text), value))
}
