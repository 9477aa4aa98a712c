package once

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
)

// The reference in the documents has each setting with its values and its default, in the order of
// the table, and no other.
func TestSettingsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/directives.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## once\n")
	_, section, _ = strings.Cut(section, "| --- | --- | --- |\n")
	plain := strings.NewReplacer("`", "", `\|`, "|")
	for _, s := range settings {
		var row string
		row, section, _ = strings.Cut(section, "\n")
		if want := plain.Replace(strings.TrimSpace(s.Name+" "+s.Syntax) + " | " + s.Usual + " |"); !strings.HasPrefix(plain.Replace(row), "| "+want) {
			t.Errorf("docs/directives.md has %q; expected %q", row, want)
		}
	}
	if !strings.HasPrefix(section, "\n") {
		t.Errorf("docs/directives.md has more settings: %.100s", section)
	}
}

// What makes no sense is refused when the configuration is loaded.
func TestLoadErrors(t *testing.T) {
	for options, says := range map[string]string{
		"":                               "scope: missing; expected whose keys these are",
		"\nscope \"\"":                   "scope: missing",
		"scope none\nbuffer off":         "buffer off: expected a size from 0 to 1GiB",
		"scope none\nkeep 8d":            "keep 192h0m0s: expected a duration of at most 168h0m0s",
		"scope none\nkeep 0":             "keep 0s: expected a duration of 1s or more",
		"scope none\nmethods P!":         `methods: "P!" is not a request method`,
		"scope none\nmax_response 65MiB": "max_response 68157440: expected a size from 1 to 64MiB",
		"scope none\ncompare all":        `compare "all": expected body or none`,
		"scope none\nkey fixed":          `key "fixed": expected a text with a placeholder`,
		"scope none\nrepeat_header a:b":  `repeat_header: "a:b" is not the name of a field`,
		"scope none\nresponse_buffer 1":  `once: unknown subdirective "response_buffer"; expected one of key, scope`,
		"scope none\nengine nothing":     `engine "nothing": there is none of this name`,
	} {
		d := caddyfile.NewTestDispenser("once {\n" + options + "\n}")
		if err := new(Handler).UnmarshalCaddyfile(d); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "Testfile:3") {
			t.Errorf("%s: %v; expected %s", options, err, says)
		}
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	for _, engine := range []string{"file", "memory"} {
		h := &Handler{EngineRaw: json.RawMessage(`{"engine":"` + engine + `"}`), records: &records{storage: new(silent)}}
		if err := h.openEngine(ctx); err == nil || !strings.Contains(err.Error(), "storage is a *once.silent, which several") {
			t.Errorf("engine %s with another storage than files: %v", engine, err)
		}
	}
}

// Caddys that share a storage may each have a directory of their own for the lines of requests. Bug: a
// key ran twice, and nothing said why.
func TestWarnsOfADirectoryOfItsOwn(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	for _, c := range []struct {
		storage, path string
		warnings      int
	}{{caddy.AppDataDir(), "", 0}, {t.TempDir(), "", 1}, {t.TempDir(), t.TempDir(), 0}} {
		core, logged := observer.New(zap.WarnLevel)
		h := &Handler{Scope: scopeNone, Path: c.path, log: zap.New(core), throttle: new(throttle.Throttle[string]),
			records: &records{storage: &certmagic.FileStorage{Path: c.storage}}}
		if err := errors.Join(h.fillIn(), h.openEngine(ctx), h.Cleanup()); err != nil || logged.Len() != c.warnings {
			t.Errorf("%v: %d warnings, %v", c, logged.Len(), err)
		}
	}
}
