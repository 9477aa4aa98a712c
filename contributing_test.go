package orderly

import (
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
	text, err := os.ReadFile("docs/contributing.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := folderHeading.FindAllSubmatchIndex(text, -1)
	for i, heading := range headings {
		folder, end := "", len(text)
		if heading[2] >= 0 {
			folder = string(text[heading[2]:heading[3]])
		}
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		for _, row := range fileRow.FindAllSubmatch(text[heading[1]:end], -1) {
			for _, file := range expandBraces(string(row[1])) {
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
