//go:build unix

package integration_test

import (
	"cmp"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// buildBook makes the site of the book and returns its directory.
func buildBook(t *testing.T) (dir string) {
	t.Helper()
	hugo := testcaddy.Need(t, "hugo", "apt-get install hugo")
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), hugo, "--source", "../.ci/site", "--destination", dir, "--cacheDir", t.TempDir(), "--panicOnWarning", "--quiet")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("hugo: %v\n%s", err, out)
	}
	return dir
}

// Every page of the documentation is a page of the site. Its links lead to pages and headings
// that are there, and nothing in it is loaded from another host.
func TestLinksOfTheBook(t *testing.T) {
	t.Parallel()
	dir := buildBook(t)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	sources, err := filepath.Glob("../docs/*.md")
	if err != nil || len(sources) == 0 {
		t.Fatalf("the documentation has %d pages, error %v", len(sources), err)
	}
	link := regexp.MustCompile(`<(\w+)[^>]* (?:href|src)="?([^" >]*)`)
	for _, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".md") + ".html"
		if name == "README.html" {
			name = "index.html"
		}
		for _, match := range link.FindAllStringSubmatch(read(name), -1) {
			target, err := url.Parse(html.UnescapeString(match[2]))
			switch {
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case target.Host != "" && match[1] != "a":
				t.Errorf("%s: <%s> %s is on another host", name, match[1], target)
			case target.Scheme != "":
			default:
				text := read(cmp.Or(target.Path, name))
				if target.Fragment != "" && !regexp.MustCompile(` id="?`+regexp.QuoteMeta(target.Fragment)+`[ ">]`).MatchString(text) {
					t.Errorf("%s: there is no heading for %s", name, target)
				}
			}
		}
	}
}

// A reader without a mouse finds a setting in the opened files.
func TestSearchOfTheBook(t *testing.T) {
	t.Parallel()
	dir := buildBook(t)
	b := openPage(t)
	b.visit("file://" + dir + "/index.html")
	b.press("/")
	b.until("document.activeElement.type === 'search'")
	b.call("Input.insertText", map[string]any{"text": "Hold_Timeout"}, nil)
	b.until("document.querySelectorAll('#found li').length > 1")
	b.until("document.querySelector('#found [aria-selected=true] b').textContent === 'Directives › hold_timeout'")
	b.until("document.querySelector('.count').textContent.endsWith('places found')")
	b.press("ArrowDown")
	b.until("document.querySelector('input').getAttribute('aria-activedescendant') === 'found-1'")
	b.press("ArrowUp")
	b.press("Enter")
	b.until("location.href.endsWith('/directives.html#hold_timeout') && document.readyState === 'complete'")
	b.until("document.getElementById('hold_timeout').getBoundingClientRect().top >= 0")

	b.press("/")
	b.call("Input.insertText", map[string]any{"text": "no such words anywhere <img>"}, nil)
	b.until("document.querySelector('.count').textContent === '0 places found'")
	b.press("Escape")
	b.until("document.querySelector('input').value === '' && document.getElementById('found').hidden")
}

// press presses a key.
func (b *browser) press(key string) {
	b.t.Helper()
	down := map[string]any{"type": "keyDown", "key": key}
	if len(key) == 1 {
		down["text"] = key
	}
	b.call("Input.dispatchKeyEvent", down, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// Everybody can read the book, on every screen: axe finds nothing, and no page scrolls sideways.
func TestBookOnScreens(t *testing.T) {
	t.Parallel()
	dir, source := buildBook(t), axe(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.html"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the book has %d pages, error %v", len(files), err)
	}
	b := openPage(t)
	for _, file := range files {
		b.visit("file://" + file)
		b.run(source, nil)
		name := strings.TrimSuffix(filepath.Base(file), ".html")
		for _, screen := range screens {
			if screen.scheme == "dark" && name != "recipes" {
				continue // the colors are the same everywhere, and these have all
			}
			b.screen(screen.width, screen.height, screen.scheme)
			b.keep("book-" + name + "-" + screen.name)
			var width int
			if b.run("document.documentElement.scrollWidth", &width); width > screen.width {
				b.t.Errorf("%s, %s: the page is %d wide", name, screen.name, width)
			}
			if screen.name != "light" { // which has the same colors as the phone, and more room
				b.check(name+", "+screen.name, name == "recipes")
			}
		}
	}
}
