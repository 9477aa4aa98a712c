package serialize

import (
	"os"
	"strings"
	"testing"
)

// Bug: an empty placeholder turned `{env.NOPE}/q` into `/q`: another
// directory, which Caddy then made. A relative path is another directory
// wherever Caddy is started.
func TestPathThatNamesNoDirectory(t *testing.T) {
	t.Setenv("ORDERLY_EMPTY", "")
	t.Setenv("ORDERLY_RELATIVE", "queues")
	for _, c := range []struct{ path, says string }{
		{"{env.ORDERLY_NOPE}/q", "env.ORDERLY_NOPE"},
		{"{env.ORDERLY_EMPTY}/q", "env.ORDERLY_EMPTY"},
		{"/tmp/{env.ORDERLY_EMPTY}", "env.ORDERLY_EMPTY"},
		{"/tmp/{nothing.of.that.name}", "nothing.of.that.name"},
		{"/tmp/{http.request.host}", "http.request.host"},
		{"queues", "absolute path"},
		{"./queues", "absolute path"},
		{"{env.ORDERLY_RELATIVE}/q", `"queues/q": expected an absolute path`},
	} {
		for _, engine := range []string{"file", "memory"} {
			s := &Handler{Path: c.path, EngineRaw: []byte(`{"engine": "` + engine + `"}`)}
			err := provision(t, s)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "serialize: path ") {
				t.Errorf("path %s, engine %s: error %v; expected one that says %s", c.path, engine, err, c.says)
			}
		}
	}
}

// Bug: the error spoke of a relative path that nobody had written.
func TestNoDefaultPath(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_DATA_HOME", "")
	if err := provision(t, new(Handler)); err == nil || !strings.Contains(err.Error(), "neither HOME nor XDG_DATA_HOME is set") {
		t.Errorf("error %v; expected one that says what is missing", err)
	}
}

// Placeholders that have a value are filled in.
func TestPathWithPlaceholder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ORDERLY_DIR", dir)
	s := &Handler{Path: "{env.ORDERLY_DIR}/q"}
	must(t, provision(t, s))
	if _, err := os.Stat(dir + "/q"); err != nil || s.Path != dir+"/q" {
		t.Errorf("path %q, %v; expected %s", s.Path, err, dir+"/q")
	}
}

// Bug: in JSON, `"engine": null` was refused, where null means the default of all others.
func TestNoEngine(t *testing.T) {
	must(t, provision(t, &Handler{Path: t.TempDir(), EngineRaw: []byte("null")}))
}
