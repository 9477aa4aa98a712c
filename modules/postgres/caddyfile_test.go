package postgres

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	_ "github.com/orderly-http/caddy-orderly" // the directive
)

const one = "url postgres://a/b\n"

func TestCaddyfile(t *testing.T) {
	for name, test := range map[string]struct{ caddyfile, json, err string }{
		"shortest":                {one, `{"url":"postgres://a/b"}`, ""},
		"all":                     {"url postgres://u:p@a:1,b:2/c?sslmode=verify-full\nnamespace shop\nttl 5s", `{"url":"postgres://u:p@a:1,b:2/c?sslmode=verify-full","namespace":"shop","ttl":5000000000}`, ""},
		"the later one overrides": {one + "ttl 3s\nurl postgresql://c\nttl 4s", `{"url":"postgresql://c","ttl":4000000000}`, ""},
		"placeholders":            {"url {env.DATABASE_URL}\nnamespace {env.NAME}", `{"url":"{env.DATABASE_URL}","namespace":"{env.NAME}"}`, ""},
		"no value":                {"url", "", "url: found 0 values; expected a URL such as"},
		"a URL with a space":      {"url postgres://u:hun ter@a", "", "url: found 2 values"},                                       // bug: it was shown
		"a URL on its own":        {"postgres://u:hunter@a", "", "unknown subdirective (not shown, since it may have a password)"}, // bug: it was shown
		"unknown":                 {one + "timeout 3s", "", `engine postgres: unknown subdirective "timeout"; expected one of url, namespace, ttl, at Testfile:3`},
	} {
		t.Run(name, func(t *testing.T) {
			e := new(Engine)
			err := e.UnmarshalCaddyfile(caddyfile.NewTestDispenser("postgres {\n" + test.caddyfile + "\n}"))
			if (err == nil) != (test.err == "") || err != nil && (!strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "Testfile:") || strings.Contains(err.Error(), "hun")) {
				t.Fatalf("got %v; expected %s", err, test.err)
			}
			if got, _ := json.Marshal(e); err == nil && string(got) != test.json {
				t.Errorf("got %s; expected %s", got, test.json)
			}
		})
	}
}

// Bugs: queues of different schemas counted as the same; a namespace that is no text was loaded.
func TestProvision(t *testing.T) {
	bytes := filepath.Join(t.TempDir(), "bytes")
	if err := os.WriteFile(bytes, []byte{'a', 0xff}, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("postgres://u:hunter@b:2,a/shop"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ json, space, err string }{
		"least":               {`{"url":"postgres://u@a/b"}`, "postgres:orderly:a:5432/b?user=u", ""},
		"from a file":         {`{"url":"{file.` + file + `}","namespace":"x"}`, "postgres:x:a:5432,b:2/shop?user=u", ""},
		"schema":              {`{"url":"postgres://u@a/b?search_path=s&sslmode=disable"}`, "postgres:orderly:a:5432/b?search_path=s&user=u", ""},
		"options":             {`{"url":"postgres://u@a/b?options=-csearch_path%3Ds"}`, "postgres:orderly:a:5432/b?options=-csearch_path%3Ds&user=u", ""},
		"nothing":             {`{}`, "", "expected a URL"},
		"no such environment": {`{"url":"{env.NO_SUCH_URL}"}`, "", "url: evaluated placeholder"},
		"port":                {`{"url":"postgres://u:hunter@a:b/c"}`, "", "invalid port"},
		"password":            {`{"url":"postgres://u:x/hunter@a/c"}`, "", "such as %40 for @"},
		"other scheme":        {`{"url":"mysql://u:hunter@a"}`, "", "expected a URL such as postgres://"},
		"bad namespace":       {`{"url":"postgres://a/b","namespace":" "}`, "", "namespace"},
		"no text":             {`{"url":"postgres://a/b","namespace":"{file.` + bytes + `}"}`, "", "expected UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			var e Engine
			if err := json.Unmarshal([]byte(test.json), &e); err != nil {
				t.Fatal(err)
			}
			err := e.Provision(caddy.Context{})
			if (err == nil) != (test.err == "") || err != nil && (!strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "hunter")) {
				t.Fatalf("got %v; expected %q", err, test.err)
			}
			if key, space := e.Where(""); space != test.space || strings.Contains(key, "hunter") || (err == nil) != strings.HasPrefix(key, "postgres:") {
				t.Errorf("space %q, key %q; expected %s", space, key, test.space)
			}
		})
	}
}
