// Package waitingpage is the page that shows waiting browsers their place.
package waitingpage

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"os"
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
)

// Template is a page, ready to be filled in.
type Template struct {
	page   *template.Template
	Policy string // its Content-Security-Policy
}

// Data is the data that a custom page shows.
type Data struct {
	Lang string // the reader's language, such as en, if there are texts in it
	Dir  string // the direction of its script: ltr or rtl

	Place   int           // 1 is the next; 0 is not known yet
	Wait    time.Duration // until the turn, as a guess; 0 is not known
	Paused  bool          // nobody enters; EstimateText says so, too
	Lost    bool          // an earlier place was given up
	Refresh int           // seconds until a browser without JavaScript comes again

	// In the reader's language.
	Title                                      string // with the place
	Heading                                    string
	PlaceText, EstimateText                    string
	KeepText, ReloadText                       string // keep this page open; it reloads by itself
	LostText                                   string
	TurnText, UsedText, AgainText, OfflineText string // for the script
}

// Script is what makes the page live. It belongs before the end of the body.
func (Data) Script() template.HTML {
	return template.HTML("<script>" + waitingJS + "</script>")
}

// Style is the style of the built-in page.
func (Data) Style() template.HTML {
	return template.HTML("<style>" + waitingCSS + "</style>")
}

// Nothing runs on a page but its script, by its hash, and nothing is loaded. A custom
// page may have styles, and pictures and fonts of its site.
const (
	strictPolicy = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src "
	builtInStyle = "; img-src data:; style-src "
	ownStyle     = "; img-src 'self' data:; style-src 'self' 'unsafe-inline'; font-src 'self' data:"
)

// BuiltIn is the page without a file.
var BuiltIn = sync.OnceValue(func() *Template {
	return &Template{
		template.Must(template.New("waiting").Parse(waitingHTML)),
		strictPolicy + webpage.SourceHash(waitingJS) + builtInStyle + webpage.SourceHash(waitingCSS),
	}
})

// maxFile bounds the page: it is sent to everybody who waits, again and again.
const maxFile = 1 << 20

// Load loads a page, and fills it in once to see that it can be. Empty
// is the built-in page.
func Load(file string) (*Template, error) {
	if file == "" {
		return BuiltIn(), nil
	}
	path, err := caddy.NewReplacer().ReplaceOrErr(file, true, true)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w; expected placeholders that have a value when the configuration is loaded", file, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("file %s: a page of %d bytes; expected at most 1MiB", path, len(text))
	}
	parsed, err := template.New("page").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", path, err)
	}
	t := &Template{parsed, strictPolicy + webpage.SourceHash(waitingJS) + ownStyle}
	var errs []error
	for _, place := range []Place{{}, {Place: 12, Estimate: time.Minute, Lost: true}, {Turn: true}, {Place: 2, Paused: true}} {
		if _, err := t.Render(defaultLanguage, place, 1); err != nil {
			errs = append(errs, fmt.Errorf("file %s: %w", path, err))
		}
	}
	return t, errors.Join(errs...)
}

// Render fills in the page. refresh is in seconds.
func (t *Template) Render(language string, place Place, refresh int) ([]byte, error) {
	texts := In(language)
	direction := "ltr"
	if texts.rightToLeft {
		direction = "rtl"
	}
	var page bytes.Buffer
	err := t.page.Execute(&page, Data{
		Lang: language, Dir: direction,
		Place: place.Place, Wait: place.Estimate, Paused: place.Paused, Lost: place.Lost, Refresh: refresh,
		Title: texts.Title(place), Heading: texts.heading, PlaceText: texts.Place(place), EstimateText: texts.Estimate(place),
		KeepText: texts.keep, ReloadText: texts.reloads, LostText: texts.lost,
		TurnText: texts.turn, UsedText: texts.used, AgainText: texts.again, OfflineText: texts.offline,
	})
	if err != nil {
		return nil, fmt.Errorf("filling in the page: %w", err)
	}
	return page.Bytes(), nil
}
