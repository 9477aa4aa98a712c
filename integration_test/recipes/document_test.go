// Package recipes runs the recipes of the documentation as they stand there.
package recipes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	_ "github.com/orderly-http/caddy-orderly"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/once"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/modules/uniqueids"
)

// The test binary is Caddy as well; see package testcaddy.
func init() { testcaddy.RunIfCaddy() }

func TestMain(m *testing.M) {
	wait.InParallel()
	os.Exit(m.Run())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	check(t, err)
	return string(text)
}

// blocks are the fenced blocks of a language under a heading of a document.
func blocks(t *testing.T, document, heading, language string) (found []string) {
	t.Helper()
	in, under := false, false
	var block strings.Builder
	for line := range strings.Lines(readFile(t, docs, document)) {
		switch {
		case in && strings.HasPrefix(line, "```"):
			in = false
			found = append(found, block.String())
		case in:
			block.WriteString(line)
		case strings.HasPrefix(line, "#"):
			under = strings.TrimSpace(strings.TrimLeft(line, "#")) == heading
		case under && strings.TrimSpace(line) == "```"+language:
			in = true
			block.Reset()
		}
	}
	if len(found) == 0 {
		t.Fatalf("docs/%s has no %s under the heading %q", document, language, heading)
	}
	return found
}

// kitchen is a recipe that is being run.
type kitchen struct {
	*testcaddy.Server
	*testcaddy.Upstream
	url string // of the site example.com
	dir string // of the lock files
}

// follow goes step by step: "+0 1" waits until 0 and 1 have entered the upstream and checks that nobody
// else does, and "-0" lets 0 leave.
func (k *kitchen) follow(steps ...string) {
	inside := make(map[string]*testcaddy.Hit)
	for _, step := range steps {
		names := strings.Fields(step[1:])
		for _, name := range names {
			if step[0] == '-' {
				inside[name].Leave()
				continue
			}
			v := k.Next(names...)
			inside[v.Name] = v
		}
		if step[0] == '+' {
			k.Nobody()
		}
	}
}

// recipePages are those whose Caddyfiles the tests run.
var recipePages = []string{"recipes.md", "moving-from-mod-serializer.md"}

// recipe is the Caddyfile under a heading of one of these pages.
func recipe(t *testing.T, heading string) string {
	t.Helper()
	page := slices.IndexFunc(recipePages, func(page string) bool { return strings.Contains(readFile(t, docs, page), "\n## "+heading+"\n") })
	return blocks(t, recipePages[max(page, 0)], heading, "caddyfile")[0]
}

// cook runs the Caddyfile under a heading of the recipes. What stands there
// for an address or a directory is replaced by one of the test's, and so are
// further pairs of old and new.
func cook(t *testing.T, heading string, pairs ...string) *kitchen {
	t.Helper()
	return cookText(t, recipe(t, heading), pairs...)
}

// cookText is cook for a Caddyfile.
func cookText(t *testing.T, caddyfile string, pairs ...string) *kitchen {
	t.Helper()
	t.Parallel()
	data := t.TempDir()
	k := &kitchen{Upstream: testcaddy.NewGatedUpstream(t), dir: filepath.Join(data, "caddy", "queues")}
	site := testprocess.FreeAddr(t)
	k.url = "http://" + site + "/"
	text := strings.NewReplacer(append(pairs,
		"\none.example.com", "\nhttp://"+site, "\ntwo.example.com", "\nhttp://"+testprocess.FreeAddr(t),
		"localhost:9000", k.Upstream.Addr, "localhost:11434", k.Upstream.Addr,
		"127.0.0.1:9000", k.Upstream.Addr, "/var/lib/caddy/queues", k.dir, "/var/lib/queues/api", k.dir)...).Replace(caddyfile)
	text = strings.Replace(text, "example.com {", "http://"+site+" {", 1)
	for _, left := range []string{"example.com", "/var/", "localhost"} {
		if strings.Contains(text, left) {
			t.Fatalf("the test would run a Caddyfile with %s in it:\n%s", left, text)
		}
	}
	k.Server = testcaddy.Start(t, text, "XDG_DATA_HOME="+data)
	return k
}

// run runs a command line of the document.
func (k *kitchen) run(t *testing.T, command string) (stdout string) {
	t.Helper()
	stdout, stderr, code := testcaddy.Output(t, append(strings.Fields(command)[1:], "--address", k.Admin)...)
	if code != 0 {
		t.Fatalf("%s: exit code %d: %s%s", command, code, stdout, stderr)
	}
	return stdout
}

func (k *kitchen) get(t *testing.T, path string, header ...string) <-chan testcaddy.Answer {
	t.Helper()
	return testcaddy.Send(t, "GET", k.url+path, "", header...)
}

// awaitTickets waits until queues whose names begin so have so many tickets.
func (k *kitchen) awaitTickets(t *testing.T, prefix string, n int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("there are %d tickets", n), func() bool {
		files, _ := filepath.Glob(filepath.Join(k.dir, prefix+"*"))
		return len(files) == n
	})
}

// want fails the test unless an answer has a status and, if not empty, a body
// with a text.
func want(t *testing.T, answers <-chan testcaddy.Answer, status int, text string) testcaddy.Answer {
	t.Helper()
	a := testcaddy.Await(t, answers)
	if a.StatusCode != status || !strings.Contains(a.Text, text) {
		t.Errorf("the answer is %d %q; expected %d %q", a.StatusCode, a.Text, status, text)
	}
	return a
}

const docs = "../../docs"

// pages are the documents, by their paths from docs.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "../*.md"} {
		found, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no %s, error %v", pattern, err)
		}
		for _, path := range found {
			name, err := filepath.Rel(docs, path)
			check(t, err)
			names = append(names, name)
		}
	}
	return names
}

// Every Caddyfile in the documentation is one that Caddy takes, or lines of a site.
func TestDocumentedCaddyfilesAreRight(t *testing.T) {
	t.Parallel()
	fence := regexp.MustCompile("(?ms)^```caddyfile\n(.*?)^```")
	lines := regexp.MustCompile("^(once|serialize|unique_ids) ")
	for _, name := range pages(t) {
		for i, match := range fence.FindAllStringSubmatch(readFile(t, docs, name), -1) {
			text := match[1]
			if lines.MatchString(text) {
				text = "example.com {\n\t" + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n\t"), "\t") + "}\n"
			}
			if _, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil); len(warnings) > 0 || err != nil {
				t.Errorf("%s, Caddyfile %d: %v%v\n%s", name, i+1, warnings, err, match[1])
			}
		}
	}
}

// Every JSON in the documentation can be read, and that of a handler is one.
func TestDocumentedJSONIsRight(t *testing.T) {
	t.Parallel()
	fence := regexp.MustCompile("(?ms)^```json\n(.*?)^```")
	for _, name := range pages(t) {
		for _, match := range fence.FindAllStringSubmatch(readFile(t, docs, name), -1) {
			var object map[string]any
			if err := json.Unmarshal([]byte(match[1]), &object); err != nil {
				t.Errorf("%s: %v\n%s", name, err, match[1])
			}
			if object["handler"] != "serialize" {
				continue
			}
			if err := json.Unmarshal([]byte(match[1]), new(serialize.Handler)); err != nil {
				t.Errorf("%s: %v\n%s", name, err, match[1])
			}
		}
	}
}

// Every setting of the handlers is documented.
func TestSettingsInJSONAreDocumented(t *testing.T) {
	t.Parallel()
	text := readFile(t, docs, "directives.md")
	for _, handler := range []any{once.Handler{}, serialize.Handler{}, uniqueids.Handler{}} {
		typ := reflect.TypeOf(handler)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "" && !strings.Contains(text, "`"+name+"`") && name != "off" {
				t.Errorf("directives.md does not mention %s", name)
			}
		}
	}
}
