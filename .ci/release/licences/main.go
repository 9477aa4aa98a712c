// Licences collects the licences of everything that goes into the archives of a release:
// for each build in .goreleaser.yaml, a file third-party/<id>/THIRD_PARTY. It needs the
// modules in the module cache, and no network.
//
//	GOWORK=off go -C .ci/release run ./licences
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/module"
)

const house = "github.com/orderly-http/caddy-orderly"

func main() {
	root, err := output("", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		log.Fatal(err)
	}
	if err := run(strings.TrimSpace(string(root))); err != nil {
		log.Fatal("collecting licences: ", err)
	}
}

// build is what .goreleaser.yaml says about a build.
type build struct {
	ID, Dir, Main           string
	Env, Tags, GOOS, GOARCH []string
	Ignore                  []struct{ GOOS, GOARCH string }
}

func run(root string) error {
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		return err
	}
	var config struct{ Builds []build }
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("reading .goreleaser.yaml: %w", err)
	}
	if len(config.Builds) == 0 {
		return errors.New(".goreleaser.yaml has no builds")
	}
	for _, b := range config.Builds {
		if err := b.write(root); err != nil {
			return fmt.Errorf("build %s: %w", b.ID, err)
		}
	}
	return nil
}

// write writes the file of one build.
func (b build) write(root string) error {
	modules, err := b.modules(root)
	if err != nil {
		return err
	}
	standard, err := standardLibrary()
	if err != nil {
		return err
	}
	file := bytes.NewBufferString("Caddy with Orderly contains the following, under the licences that stand with each.\n")
	for _, m := range append([]used{standard}, modules...) {
		if err := m.describe(file); err != nil {
			return fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
		}
	}
	dir := filepath.Join(root, "third-party", b.ID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fmt.Printf("%s: %d modules\n", b.ID, len(modules))
	return os.WriteFile(filepath.Join(dir, "THIRD_PARTY"), file.Bytes(), 0o644)
}

// used is a module that a build contains.
type used struct {
	Path, Version, Dir string

	source  string
	folders set // of its packages in the build, and those above them
}

type set map[string]struct{}

func standardLibrary() (used, error) {
	said, err := output("", nil, "go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return used{}, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	return used{Path: "Go's standard library", Version: version, Dir: root, source: "https://go.dev/dl/" + version + ".src.tar.gz", folders: set{root: {}}}, nil
}

// modules lists the modules of others that a build contains, on any of its systems.
func (b build) modules(root string) ([]used, error) {
	found := make(map[string]used)
	for _, goos := range b.GOOS {
		for _, goarch := range b.GOARCH {
			if slices.Contains(b.Ignore, struct{ GOOS, GOARCH string }{goos, goarch}) {
				continue
			}
			if err := b.add(found, root, goos, goarch); err != nil {
				return nil, fmt.Errorf("for %s/%s: %w", goos, goarch, err)
			}
		}
	}
	if len(found) == 0 {
		return nil, errors.New("it contains no modules, on no system")
	}
	return slices.SortedFunc(maps.Values(found), func(a, b used) int { return cmp.Compare(a.Path, b.Path) }), nil
}

func (b build) add(found map[string]used, root, goos, goarch string) error {
	listed, err := output(filepath.Join(root, b.Dir), append(b.Env, "GOOS="+goos, "GOARCH="+goarch),
		"go", "list", "-deps", "-json=Dir,Module", "-tags", strings.Join(b.Tags, ","), b.Main)
	if err != nil {
		return err
	}
	for packages := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p struct {
			Dir    string
			Module *used // none in the standard library
		}
		switch err := packages.Decode(&p); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("reading what go list says: %w", err)
		case p.Module == nil || p.Module.Path == house || strings.HasPrefix(p.Module.Path, house+"/"):
			continue
		}
		m, seen := found[p.Module.Path]
		if !seen {
			m = *p.Module
			m.folders = make(set)
		}
		for dir := p.Dir; len(dir) >= len(m.Dir); dir = filepath.Dir(dir) {
			m.folders[dir] = struct{}{}
		}
		found[m.Path] = m
	}
}

var (
	licenceName = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying)([-._].*)?$`)
	noticeName  = regexp.MustCompile(`(?i)^(notice|patents|copyright)([-._].*)?$`)
	codeName    = regexp.MustCompile(`(?i)\.(go|s|c|h)$`)
)

// describe writes the licences and notices of a module.
func (m used) describe(to io.Writer) error {
	if m.source == "" {
		path, err := module.EscapePath(m.Path)
		if err != nil {
			return err
		}
		m.source = "https://proxy.golang.org/" + path + "/@v/" + m.Version + ".zip"
	}
	fmt.Fprintf(to, "\n%s\n%s %s\nSource: %s\n", strings.Repeat("=", 80), m.Path, m.Version, m.source)
	licences := 0
	for _, folder := range slices.Sorted(maps.Keys(m.folders)) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			isLicence := licenceName.MatchString(entry.Name())
			if entry.IsDir() || codeName.MatchString(entry.Name()) || !isLicence && !noticeName.MatchString(entry.Name()) {
				continue
			}
			file := filepath.Join(folder, entry.Name())
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(m.Dir, file)
			if err != nil {
				return err
			}
			fmt.Fprintf(to, "\n--- %s\n\n%s\n", filepath.ToSlash(name), bytes.TrimSpace(text))
			if isLicence {
				licences++
			}
		}
	}
	if licences == 0 {
		return errors.New("there is no licence in " + m.Dir)
	}
	return nil
}

func output(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}
