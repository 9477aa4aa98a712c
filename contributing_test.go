package orderly

import (
	"cmp"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/contributing.md names every file of the house, and none that has gone.
func TestEveryFileIsNamed(t *testing.T) {
	named := filesNamed(t)
	for _, file := range goFiles(t) {
		if i := slices.Index(named, file); i >= 0 {
			named = slices.Delete(named, i, i+1)
			continue
		}
		t.Errorf("docs/contributing.md has no line for %s", file)
	}
	for _, file := range named {
		t.Errorf("docs/contributing.md has a line for %s, which does not exist", file)
	}
}

// goFiles are the Go files that are no tests.
func goFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && file != "." {
			return errorOr(err, fs.SkipDir)
		}
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			files = append(files, filepath.ToSlash(file))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func errorOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

var (
	folderHeading = regexp.MustCompile("(?m)^### (?:The root|`([^`]+)`)$")
	fileRow       = regexp.MustCompile("(?m)^\\| `([^`]+\\.go)` \\|")
)

// filesNamed are the files that docs/contributing.md has a line for.
func filesNamed(t *testing.T) (files []string) {
	t.Helper()
	text := contributing(t)
	headings := folderHeading.FindAllStringSubmatchIndex(text, -1)
	for i, heading := range headings {
		folder, end := "", len(text)
		if heading[2] >= 0 {
			folder = text[heading[2]:heading[3]]
		}
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		for _, row := range fileRow.FindAllStringSubmatch(text[heading[1]:end], -1) {
			for _, file := range expandBraces(row[1]) {
				files = append(files, path.Join(folder, file))
			}
		}
	}
	return files
}

// expandBraces turns a_{x,y}.go into a_x.go and a_y.go.
func expandBraces(name string) (names []string) {
	before, rest, found := strings.Cut(name, "{")
	if !found {
		return []string{name}
	}
	choices, after, _ := strings.Cut(rest, "}")
	for choice := range strings.SplitSeq(choices, ",") {
		names = append(names, before+choice+after)
	}
	return names
}

// Imports only go down: docs/contributing.md lists each package with what it imports
// of the house, and nothing that stands below it in the list.
func TestImportsGoDown(t *testing.T) {
	imports := packageImports(t)
	var above []string
	for _, row := range importRow.FindAllStringSubmatch(contributing(t), -1) {
		name, listed := row[1], packageNames(row[2])
		if found := imports[name]; !slices.Equal(slices.Sorted(slices.Values(listed)), found) {
			t.Errorf("docs/contributing.md says that %s imports %v; it imports %v", name, listed, found)
		}
		for _, of := range listed {
			if !slices.Contains(above, of) {
				t.Errorf("%s imports %s, which does not stand above it", name, of)
			}
		}
		above = append(above, name)
		delete(imports, name)
	}
	for name := range imports {
		t.Errorf("docs/contributing.md does not say what %s imports", name)
	}
}

const theRoot = "the root"

var (
	importRow   = regexp.MustCompile("(?m)^\\| `?(the root|[^`|]+/[^`|]+|uniqueid|serializer)`? \\| (none|(?:(?:the root|`[^`|]+`)(?:, )?)+) \\|$")
	packageName = regexp.MustCompile("the root|`([^`]+)`")
)

func packageNames(list string) (names []string) {
	for _, name := range packageName.FindAllString(list, -1) {
		names = append(names, strings.Trim(name, "`"))
	}
	return names
}

// packageImports are the packages with what they import of the house, on any system.
// The measurements are a house of their own.
func packageImports(t *testing.T) map[string][]string {
	t.Helper()
	const house = "github.com/orderly-http/caddy-orderly"
	imports := make(map[string][]string)
	for _, file := range goFiles(t) {
		if strings.HasPrefix(file, "bench/") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Replace(path.Dir(file), ".", theRoot, 1)
		of := imports[name]
		for _, spec := range parsed.Imports {
			if rest, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), house); ok {
				of = append(of, cmp.Or(strings.TrimPrefix(rest, "/"), theRoot))
			}
		}
		slices.Sort(of)
		imports[name] = slices.Compact(of)
	}
	return imports
}

// contributing is the page for contributors.
func contributing(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("docs/contributing.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
