package orderly

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every test that the documents run exists: each name in its pattern, in one of the
// packages. So does every flag of the package's own.
func TestDocumentedTests(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	must(t, err)
	command := regexp.MustCompile("(?:cd ([a-z/]+) && )?go test ([^`#&;\n]+)")
	found := 0
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		for _, match := range command.FindAllStringSubmatch(textOf(t, page), -1) {
			found++
			for _, fault := range faultsOf(parseGoTest(match[1], match[2])) {
				t.Errorf("%s: %s: %s", page, strings.TrimSpace(match[0]), fault)
			}
		}
	}
	if found < 20 {
		t.Errorf("the documents have only %d commands for tests", found)
	}
}

// Every test that the documents name in their text exists.
func TestNamedTests(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	must(t, err)
	var all []string
	for _, file := range testFiles("...") {
		tests, _ := testsAndFlags(file)
		all = append(all, tests...)
	}
	named := regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	for _, page := range append(pages, "README.md") {
		for _, name := range named.FindAllString(textOf(t, page), -1) {
			if !slices.ContainsFunc(all, func(test string) bool { return strings.HasPrefix(test, name) }) {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
	}
}

// goTest is what a command line of go test says.
type goTest struct {
	run      string // a pattern of tests, benchmarks or fuzz tests
	packages []string
	flags    []string // that are not go test's
}

func parseGoTest(dir, line string) (c goTest) {
	args := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(line, `\|`, "|"), "'", ""))
	for i := 0; i < len(args); i++ {
		switch name := args[i]; {
		case name == "-v" || name == "-race":
		case name == "-run" || name == "-fuzz" || name == "-bench":
			i++
			c.run = args[i]
		case name == "-timeout" || name == "-cpu" || name == "-count":
			i++
		case strings.HasPrefix(name, "-"):
			c.flags = append(c.flags, strings.TrimPrefix(name, "-"))
		case strings.HasPrefix(name, "."):
			c.packages = append(c.packages, filepath.Join(dir, name))
		}
	}
	return c
}

func faultsOf(c goTest) (faults []string) {
	var tests, flags []string
	for _, name := range c.packages {
		files := testFiles(name)
		if len(files) == 0 {
			faults = append(faults, "there are no tests in "+name)
		}
		for _, file := range files {
			theirTests, theirFlags := testsAndFlags(file)
			tests, flags = append(tests, theirTests...), append(flags, theirFlags...)
		}
	}
	for part := range strings.SplitSeq(c.run, "|") {
		pattern, err := regexp.Compile(part)
		if err != nil || !slices.ContainsFunc(tests, pattern.MatchString) {
			faults = append(faults, "no test is named "+part)
		}
	}
	for _, name := range c.flags {
		if !slices.Contains(flags, name) {
			faults = append(faults, "there is no flag "+name)
		}
	}
	return faults
}

// testFiles are those of a package, or with ... of all below.
func testFiles(name string) (files []string) {
	parent, all := strings.CutSuffix(name, "...")
	if !all {
		files, _ = filepath.Glob(filepath.Join(name, "*_test.go"))
		return files
	}
	_ = filepath.WalkDir(filepath.Clean(parent), func(file string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
		return err
	})
	return files
}

var (
	function = regexp.MustCompile(`(?m)^func (?:\(.*?\) )?(\w+)`)
	flagged  = regexp.MustCompile(`\bflag\.\w+\("([^"]+)"`)
	helpers  = regexp.MustCompile(`"github.com/orderly-http/caddy-orderly/(\S*internal/test\S*)"`)
)

// testsAndFlags are the names of a file's functions, and of the flags that it or a package of
// helpers defines.
func testsAndFlags(file string) (tests, flags []string) {
	source, _ := os.ReadFile(file)
	text := string(source)
	for _, match := range function.FindAllStringSubmatch(text, -1) {
		tests = append(tests, match[1])
	}
	for _, match := range flagged.FindAllStringSubmatch(text, -1) {
		flags = append(flags, match[1])
	}
	for _, match := range helpers.FindAllStringSubmatch(text, -1) {
		theirs, _ := filepath.Glob(filepath.Join(match[1], "*.go"))
		for _, helper := range theirs {
			_, more := testsAndFlags(helper)
			flags = append(flags, more...)
		}
	}
	return tests, flags
}
