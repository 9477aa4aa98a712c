// Package waitingpage has the tickets of browsers that wait without a connection, and the
// page that shows them their place.
package waitingpage

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/webpage"
)

var (
	//go:embed waiting.html
	waitingHTML string
	//go:embed waiting.css
	waitingCSS string
	//go:embed waiting.js
	waitingJS string
	//go:embed texts.json
	textsJSON []byte
)

// Data is what a page shows.
type Data struct {
	Place
	Lost    bool              // an earlier place was given up
	Refresh int               // seconds until a browser without JavaScript comes again
	Lang    string            // the reader's language, such as en
	Text    map[string]string // the texts in it
}

// Script is what makes the page live. It belongs before the end of the body.
func (d Data) Script() (template.HTML, error) {
	data, err := json.Marshal(d) // which escapes all that could end the element
	return template.HTML(`<script type="application/json">` + string(data) + "</script><script>" + waitingJS + "</script>"), err
}

// Style is the style of the built-in page.
func (Data) Style() template.HTML { return template.HTML("<style>" + waitingCSS + "</style>") }

// Policy is the Content-Security-Policy of all pages. Nothing runs but the script, by its
// hash. A page may have styles, and pictures and fonts of its site.
var Policy = sync.OnceValue(func() string {
	return "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"img-src 'self' data:; style-src 'self' 'unsafe-inline'; font-src 'self' data:; script-src " + webpage.SourceHash(waitingJS)
})

// Page is a page, ready to be filled in.
type Page struct{ template *template.Template }

// maxFile bounds the page: it is sent to everybody who waits, again and again.
const maxFile = 1 << 20

// Load loads a page, and fills it in to see that it can be. No file means the built-in page.
func Load(file string) (*Page, error) {
	text, err := read(file)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New("page").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parsing the page: %w", err)
	}
	page := &Page{parsed}
	for number := range 3 {
		language, texts := Texts(nil)
		if _, err := page.Render(Data{Place: Place{Number: number}, Lost: number > 1, Lang: language, Text: texts}); err != nil {
			return nil, err
		}
	}
	return page, nil
}

func read(file string) (string, error) {
	if file == "" {
		return waitingHTML, nil
	}
	path, err := caddy.NewReplacer().ReplaceOrErr(file, true, true)
	if err != nil {
		return "", fmt.Errorf("%w; expected placeholders that have a value when the configuration is loaded", err)
	}
	text, err := os.ReadFile(path)
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("a page of %d bytes; expected at most 1MiB", len(text))
	}
	return string(text), err
}

// Render fills in the page.
func (p *Page) Render(data Data) ([]byte, error) {
	var page bytes.Buffer
	if err := p.template.Execute(&page, data); err != nil {
		return nil, fmt.Errorf("filling in the page: %w", err)
	}
	return page.Bytes(), nil
}

var languages = sync.OnceValue(func() (all map[string]map[string]string) {
	if err := json.Unmarshal(textsJSON, &all); err != nil {
		panic(err) // a test reads it
	}
	return all
})

// Texts are those in the language that a reader prefers, of the available ones. Texts have
// no nouns with numbers, which have many forms in some languages.
func Texts(accept []string) (language string, texts map[string]string) {
	language, best := "en", 0.0
	for text := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		tag, params, _ := strings.Cut(text, ";")
		primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
		if q := webpage.QualityParam(params); q > best && languages()[primary] != nil {
			language, best = primary, q
		}
	}
	return language, languages()[language]
}
