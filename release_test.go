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

// goModules are the go.mod files of the repository, by their folders.
func goModules(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		found[filepath.ToSlash(filepath.Dir(file))] = textOf(t, file)
		return nil
	})
	must(t, err)
	if len(found) < 10 {
		t.Fatalf("the repository has only %d modules", len(found))
	}
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func textOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// All modules, images, workflows and documents name the same versions of Caddy and of Go.
func TestVersionsAgree(t *testing.T) {
	modules := goModules(t)
	root := modules["."]
	version := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(root)
		if found == nil {
			t.Fatalf("go.mod has no %s", pattern)
		}
		return found[1]
	}
	goreleaser := regexp.MustCompile(`GoReleaser (2\.\d+\.\d+) was run`).FindStringSubmatch(textOf(t, ".ci/release/README.md"))
	if goreleaser == nil {
		t.Fatal(".ci/release/README.md does not say which GoReleaser was run")
	}
	caddy, golang := version(`github.com/caddyserver/caddy/v2 (v\S+)`), version(`(?m)^go (\d+\.\d+)`)
	for folder, text := range modules {
		if found := regexp.MustCompile(`github.com/caddyserver/caddy/v2 (v\S+)`).FindStringSubmatch(text); found != nil && found[1] != caddy {
			t.Errorf("%s/go.mod requires Caddy %s; the root requires %s", folder, found[1], caddy)
		}
	}
	for _, c := range []struct{ file, pattern, want string }{
		{"docs/upgrading.md", `(v2\.[1-9]\d*\.\d+)`, caddy},
		{"docs/upgrading.md", `\| (1\.\d+)(?: or later)? \|`, golang},
		{"docs/quick-start.md", `Go (1\.\d+)`, golang},
		{"README.md", `Go (1\.\d+)`, golang},
		{"Dockerfile", `golang:(1\.\d+)-`, golang},
		{".github/workflows/ci.yml", `golang:(1\.\d+)-`, golang},
		{".github/workflows/ci.yml", `go-version: "(1\.\d+)\.x"`, golang},
		{".github/workflows/ci.yml", `\bgo(1\d+)\b`, strings.ReplaceAll(golang, ".", "")},
		{".github/workflows/release.yml", `go-version: "(1\.\d+)\.x"`, golang},
		{".github/workflows/ci.yml", `(?m)^ +version: (\S+)`, "v" + goreleaser[1]},
		{".github/workflows/release.yml", `(?m)^ +version: (\S+)`, "v" + goreleaser[1]},
	} {
		found := regexp.MustCompile(c.pattern).FindAllStringSubmatch(textOf(t, c.file), -1)
		if len(found) == 0 {
			t.Errorf("%s has no %s", c.file, c.pattern)
		}
		for _, match := range found {
			if match[1] != c.want {
				t.Errorf("%s says %s; it should be %s", c.file, match[0], c.want)
			}
		}
	}
}

// Dependabot looks only where it is told to, and does not follow the arguments of a
// Dockerfile into the names of images.
func TestDependabotSeesEverything(t *testing.T) {
	config := textOf(t, ".github/dependabot.yml")
	listed := regexp.MustCompile(`directories: \[(.*)\]`).FindStringSubmatch(config)
	if listed == nil {
		t.Fatal("dependabot.yml lists no directories")
	}
	directories := strings.Split(strings.ReplaceAll(listed[1], `"`, ""), ", ")
	modules := goModules(t)
	for folder := range modules {
		if !slices.ContainsFunc(directories, func(pattern string) bool {
			matches, err := path.Match(pattern, path.Join("/", folder))
			return matches && err == nil
		}) {
			t.Errorf("dependabot.yml does not list the module in %s", folder)
		}
	}
	for _, ecosystem := range []string{"github-actions", "docker", "docker-compose"} {
		if !regexp.MustCompile(`package-ecosystem: ` + ecosystem + `\b`).MatchString(config) {
			t.Errorf("dependabot.yml has no %s", ecosystem)
		}
	}
	for _, from := range regexp.MustCompile(`(?m)^FROM (.*)$`).FindAllString(textOf(t, "Dockerfile"), -1) {
		if strings.Contains(from, "$") {
			t.Errorf("dependabot cannot follow %q", from)
		}
	}
}

// The workflows run code of others as it was at one commit: somebody who takes a tag over must
// not reach our releases.
func TestActionsArePinned(t *testing.T) {
	workflows, err := filepath.Glob(".github/workflows/*.yml")
	must(t, err)
	pinned, commits := regexp.MustCompile(`^([\w./-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+$`), make(map[string]string)
	for _, workflow := range workflows {
		for _, uses := range regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`).FindAllStringSubmatch(textOf(t, workflow), -1) {
			if strings.HasPrefix(uses[1], "./") {
				continue
			}
			match := pinned.FindStringSubmatch(uses[1])
			if match == nil {
				t.Errorf("%s uses %s without a commit and its version", workflow, uses[1])
				continue
			}
			if other, ok := commits[match[1]]; ok && other != match[2] {
				t.Errorf("the workflows use two commits of %s", match[1])
			}
			commits[match[1]] = match[2]
		}
	}
	if len(commits) < 7 {
		t.Errorf("the workflows use only %d actions", len(commits))
	}
}

// Bug: programs that the release workflow downloaded ran in the job whose token may write,
// and every checkout left its token in a file.
func TestTokensStayWithGitHub(t *testing.T) {
	workflows, err := filepath.Glob(".github/workflows/*.yml")
	must(t, err)
	var writing int
	for _, workflow := range workflows {
		text := textOf(t, workflow)
		for _, step := range regexp.MustCompile(`(?m)^      - uses: actions/checkout@.*\n((?: {8}.*\n)*)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(step[1], "persist-credentials: false") {
				t.Errorf("%s leaves the token in a checkout", workflow)
			}
		}
		for _, job := range regexp.MustCompile(`(?m)^  (\S+):\n((?:    .*\n|\n)+)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(job[2], ": write") {
				continue
			}
			writing++
			for _, uses := range regexp.MustCompile(`uses: (\S+)`).FindAllStringSubmatch(job[2], -1) {
				if !strings.HasPrefix(uses[1], "actions/") || strings.HasPrefix(uses[1], "actions/checkout@") {
					t.Errorf("the job %s of %s may write, and runs %s", job[1], workflow, uses[1])
				}
			}
		}
	}
	if writing != 1 {
		t.Errorf("%d jobs may write; expected the one that publishes a release", writing)
	}
}

// There are archives of the plugin alone and of each engine. The page for those who
// install says which.
func TestArchivesAreDocumented(t *testing.T) {
	page := textOf(t, "docs/upgrading.md")
	rows := regexp.MustCompile(`(?m)^\| .(orderly(?:-[a-z]+)?)_<version>_.*$`).FindAllStringSubmatch(page, -1)
	systems := map[string]string{"linux": "Linux", "darwin": "`darwin`", "windows": "windows", "freebsd": "FreeBSD"}
	builds := regexp.MustCompile(`(?m)^  - id: (\S+)\n(?:    (?:dir|main|binary|env|flags|ldflags|tags): .*\n)+    goos: \[(.*)\]`).FindAllStringSubmatch(textOf(t, ".goreleaser.yaml"), -1)
	missing := map[string]bool{"orderly": true}
	for _, folder := range engineFolders(t) {
		missing["orderly-"+path.Base(folder)] = true
	}
	for _, build := range builds {
		if !missing[build[1]] {
			t.Errorf(".goreleaser.yaml builds %s twice, or there is no such engine", build[1])
		}
		delete(missing, build[1])
		var documented strings.Builder
		for _, row := range rows {
			if row[1] == build[1] {
				documented.WriteString(row[0])
			}
		}
		for goos := range strings.SplitSeq(build[2], ", ") {
			if !strings.Contains(documented.String(), systems[goos]) {
				t.Errorf("docs/upgrading.md does not say that there are archives of %s for %s", build[1], goos)
			}
		}
	}
	for id := range missing {
		t.Errorf(".goreleaser.yaml has no build %s", id)
	}
}
