package orderly

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// layers are those of the code, from top to bottom. A package belongs to the first that it matches.
var layers = []string{"cmd/", ".", "modules/", "uniqueid", "serializer", "internal/"}

const (
	modulePath   = "github.com/orderly-http/caddy-orderly/"
	caddyModules = "github.com/caddyserver/"
)

// Imports only go down, and the libraries know nothing of Caddy.
func TestImportsGoDown(t *testing.T) {
	for file, imports := range importsOf(t) {
		from := layerOf(path.Dir(file))
		library := strings.HasPrefix(file, "uniqueid/") || strings.HasPrefix(file, "serializer/")
		for _, imported := range imports {
			if library && strings.HasPrefix(imported, caddyModules) {
				t.Errorf("%s belongs to a library, and imports %s", file, imported)
			}
			if name, ours := strings.CutPrefix(imported+"/", modulePath); ours && layerOf(strings.TrimSuffix(name, "/")) < from {
				t.Errorf("%s imports %s, which is above it", file, imported)
			}
		}
	}
}

func layerOf(name string) int {
	if name == "" {
		name = "."
	}
	if strings.HasPrefix(name, "modules/") && strings.HasSuffix(name, "/cmd/caddy") { // of an engine
		name = "cmd/caddy"
	}
	for i, layer := range layers {
		if name == layer || layer != "." && strings.HasPrefix(name+"/", layer) {
			return i
		}
	}
	return len(layers)
}

// importsOf are the Go files that are no tests, with what they import. The measurements are
// a module of their own.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	files := make(map[string][]string)
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (file == "bench" || strings.HasPrefix(file, ".") && file != "."):
			return fs.SkipDir
		case !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			name := filepath.ToSlash(file)
			files[name] = append(files[name], strings.Trim(spec.Path.Value, `"`))
		}
		return nil
	})
	must(t, err)
	return files
}
