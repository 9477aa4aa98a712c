package serialize

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

// waitingTemplate is a page, ready to be filled in.
type waitingTemplate struct {
	*template.Template
	policy string // its Content-Security-Policy
}

// WaitingData is the data that a custom page shows.
type WaitingData struct {
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
func (WaitingData) Script() template.HTML {
	return template.HTML("<script>" + waitingJS + "</script>")
}

// Style is the style of the built-in page.
func (WaitingData) Style() template.HTML {
	return template.HTML("<style>" + waitingCSS + "</style>")
}

// Nothing runs on a page but its script, by its hash, and nothing is loaded. A custom
// page may have styles, and pictures and fonts of its site.
const (
	strictPolicy = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src "
	builtInStyle = "; img-src data:; style-src "
	ownStyle     = "; img-src 'self' data:; style-src 'self' 'unsafe-inline'; font-src 'self' data:"
)

var builtInWaiting = sync.OnceValue(func() *waitingTemplate {
	return &waitingTemplate{
		template.Must(template.New("waiting").Parse(waitingHTML)),
		strictPolicy + webpage.SourceHash(waitingJS) + builtInStyle + webpage.SourceHash(waitingCSS),
	}
})

// maxWaitingFile bounds the page: it is sent to everybody who waits, again and again.
const maxWaitingFile = 1 << 20

// loadWaitingTemplate loads a page, and fills it in once to see that it can be. Empty
// is the built-in page.
func loadWaitingTemplate(file string) (*waitingTemplate, error) {
	if file == "" {
		return builtInWaiting(), nil
	}
	path, err := caddy.NewReplacer().ReplaceOrErr(file, true, true)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w; expected placeholders that have a value when the configuration is loaded", file, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	if len(text) > maxWaitingFile {
		return nil, fmt.Errorf("file %s: a page of %d bytes; expected at most 1MiB", path, len(text))
	}
	parsed, err := template.New("page").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", path, err)
	}
	t := &waitingTemplate{parsed, strictPolicy + webpage.SourceHash(waitingJS) + ownStyle}
	var errs []error
	for _, place := range []shownPlace{{}, {place: 12, estimate: time.Minute, lost: true}, {turn: true}, {place: 2, paused: true}} {
		if _, err := t.render(defaultLanguage, place, 1); err != nil {
			errs = append(errs, fmt.Errorf("file %s: %w", path, err))
		}
	}
	return t, errors.Join(errs...)
}

func (t *waitingTemplate) render(language string, place shownPlace, refresh int) ([]byte, error) {
	texts := waitingTexts[language]
	direction := "ltr"
	if texts.rightToLeft {
		direction = "rtl"
	}
	var page bytes.Buffer
	err := t.Execute(&page, WaitingData{
		Lang: language, Dir: direction,
		Place: place.place, Wait: place.estimate, Paused: place.paused, Lost: place.lost, Refresh: refresh,
		Title: texts.title(place), Heading: texts.heading, PlaceText: texts.place(place), EstimateText: texts.estimate(place),
		KeepText: texts.keep, ReloadText: texts.reloads, LostText: texts.lost,
		TurnText: texts.turn, UsedText: texts.used, AgainText: texts.again, OfflineText: texts.offline,
	})
	if err != nil {
		return nil, fmt.Errorf("filling in the page: %w", err)
	}
	return page.Bytes(), nil
}
