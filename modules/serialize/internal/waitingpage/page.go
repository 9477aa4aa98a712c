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
	"strconv"
	"strings"
	"sync"
	"time"

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
	Wait    time.Duration     // until the turn, as a guess; 0 is not known
	Lost    bool              // an earlier place was given up
	Refresh int               // seconds until a browser without JavaScript comes again
	Lang    string            // the reader's language, such as en
	Text    map[string]string // the texts in it
}

// Title is that of the page, with the place in front: tabs show little of it.
func (d Data) Title() string {
	if d.Number == 0 {
		return d.Text["heading"]
	}
	return fmt.Sprintf("(%d) %s", d.Number, d.Text["heading"])
}

// PlaceText says where the browser stands.
func (d Data) PlaceText() string {
	switch d.Number {
	case 0:
		return d.Text["joining"]
	case 1:
		return d.Text["next"]
	}
	return strings.Replace(d.Text["number"], "#", strconv.Itoa(d.Number), 1)
}

// PausedText says that nobody enters. It is empty if somebody may.
func (d Data) PausedText() string {
	if !d.Paused {
		return ""
	}
	return d.Text["paused"]
}

// JSON is what the page's script gets when it asks for the place.
func (d Data) JSON() []byte {
	text, _ := json.Marshal(map[string]any{ // which can be written
		"title": d.Title(), "place": d.PlaceText(), "paused": d.PausedText(), "wait": d.Wait.Seconds(),
	})
	return text
}

// Script is what makes the page live. It belongs before the end of the body.
func (Data) Script() template.HTML { return template.HTML("<script>" + waitingJS + "</script>") }

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
	text := []byte(waitingHTML)
	if file != "" {
		path, err := caddy.NewReplacer().ReplaceOrErr(file, true, true)
		if err != nil {
			return nil, fmt.Errorf("file %q: %w; expected placeholders that have a value when the configuration is loaded", file, err)
		}
		if text, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("reading the page: %w", err)
		}
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("file %s: a page of %d bytes; expected at most 1MiB", file, len(text))
	}
	parsed, err := template.New("page").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", file, err)
	}
	page := &Page{parsed}
	for _, data := range []Data{{}, {Place: Place{Number: 12}, Wait: time.Minute, Lost: true}, {Place: Place{2, true}}} {
		if _, err := page.Render(data); err != nil {
			return nil, fmt.Errorf("file %s: %w", file, err)
		}
	}
	return page, nil
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
