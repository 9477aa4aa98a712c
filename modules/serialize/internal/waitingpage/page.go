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
	"time"

	"golang.org/x/text/language"

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

// Page is a page, ready to be filled in, and when browsers get it.
type Page struct {
	template    *template.Template
	status      int
	json        bool // for programs, too
	after, hold time.Duration
}

// Load loads a page, and fills it in to see that it can be. No file means the built-in page.
// Browsers get it after a time, with a status, and places are kept for hold. With json, programs
// get their place, too.
func Load(file string, status int, json bool, after, hold time.Duration) (*Page, error) {
	text := waitingHTML
	if file != "" {
		own, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", file, err)
		}
		text = string(own)
	}
	parsed, err := template.New("page").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("file %s: parsing the page: %w", file, err)
	}
	page := &Page{parsed, status, json, after, hold}
	name, texts := Texts(nil)
	for number := range 3 {
		if _, err := page.render(Data{Place: Place{Number: number, Opens: time.Unix(int64(number), 0), Listed: number}, Lost: number > 1, Lang: name, Text: texts}); err != nil {
			return nil, fmt.Errorf("file %s: %w", file, err)
		}
	}
	return page, nil
}

// render fills in the page.
func (p *Page) render(data Data) ([]byte, error) {
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
func Texts(accept []string) (name string, texts map[string]string) {
	preferred, _, _ := language.ParseAcceptLanguage(strings.Join(accept, ",")) // none if it makes no sense
	for _, tag := range preferred {
		base, _ := tag.Base()
		name = base.String()
		if script, _ := tag.Script(); script.String() == "Hant" { // said, or usual where the reader lives
			name += "-Hant"
		}
		if texts = languages()[name]; texts != nil {
			return name, texts
		}
	}
	return "en", languages()["en"]
}
