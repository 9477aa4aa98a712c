package report

import (
	_ "embed"
	"fmt"
	"html"
	"os"
	"strings"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// Bar is one contestant's figure.
type Bar struct {
	Label string
	Ours  bool
	figures.Summary
}

// Panel is a list of bars on one scale.
type Panel struct {
	Title string // says what is shown, in which unit, and whether more or less is better
	Bars  []Bar
}

// Bars are a figure of some cases.
func Bars(s *figures.Set, figure string, cases []figures.Case, ours func(figures.Case) bool) (bars []Bar) {
	for _, c := range cases {
		bars = append(bars, Bar{c.Who, ours(c), s.Of(c, figure)})
	}
	return bars
}

// frame is a drawing without its panels, for their width and height.
//
//go:embed plot.svg
var frame string

// Sizes of a drawing, in its own units.
const (
	barHeight   = 22
	panelHead   = 34
	labelsWidth = 230
	barsWidth   = 420
	valuesWidth = 110
)

// Plot draws panels one below the other, as an SVG file. Each bar has a line from the
// least value to the greatest.
func Plot(path string, panels []Panel) error {
	var text strings.Builder
	y := 0
	for _, p := range panels {
		fmt.Fprintf(&text, "<text class=\"title\" x=\"8\" y=\"%d\">%s</text>\n", y+22, html.EscapeString(p.Title))
		y += panelHead
		most := 0.0
		for _, b := range p.Bars {
			most = max(most, b.Most)
		}
		for _, b := range p.Bars {
			b.draw(&text, y, barsWidth/most)
			y += barHeight
		}
	}
	return os.WriteFile(path, fmt.Appendf(nil, frame, labelsWidth+barsWidth+valuesWidth, y+barHeight/2, &text), 0o644)
}

func (b Bar) draw(text *strings.Builder, y int, scale float64) {
	class := map[bool]string{true: "ours", false: "other"}[b.Ours]
	low, high := labelsWidth+b.Least*scale, labelsWidth+b.Most*scale
	fmt.Fprintf(text, "<text class=\"label\" x=\"%d\" y=\"%d\">%s</text>\n", labelsWidth-8, y+13, html.EscapeString(b.Label))
	fmt.Fprintf(text, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"17\"/>\n", class, labelsWidth, y, b.Median*scale)
	fmt.Fprintf(text, "<path d=\"M%.1f %.1fH%.1f\"/>\n", low, float64(y)+8.5, high)
	fmt.Fprintf(text, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", high+6, y+13, Number(b.Median))
}
