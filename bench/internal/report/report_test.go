package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 0.0123: "0.012", -0.5: "-0.50", 12.34: "12.3", -1234: "-1,234", 1234567: "1,234,567"} {
		if got := Number(value); got != want {
			t.Errorf("Number(%v) = %q, want %q", value, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	s := new(figures.Set)
	one, two := figures.Case{Who: "one"}, figures.Case{Who: "two"}
	for _, n := range []float64{10, 20, 90} {
		s.Add(one, figures.Values{"n": n})
		s.Add(two, figures.Values{"n": 3 * n})
	}
	got := Tabulate(s, "Title.", []figures.Case{two, {Who: "three"}}, Label("who", func(c figures.Case) string { return c.Who }),
		Median("median", "n"), Spread("spread", "n"), Ratio("ratio", "n", "one"), More("more", "n", "one")).String()
	want := `Title.

| who   | median | spread            | ratio | more |
| ---   | ---:   | ---:              | ---:  | ---: |
| two   | 60.0   | 60.0 (30.0 to 270) | 3.00  | 40.0 |
| three | –      | –                 | –     | –    |
`
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s", got)
	}
}

func TestRefresh(t *testing.T) {
	doc := filepath.Join(t.TempDir(), "doc.md")
	write := func(text string) {
		if err := os.WriteFile(doc, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("before\n<!-- figures: ids -->\nold\n<!-- end -->\nafter")
	if err := Refresh(doc, map[string]string{"ids": "new\n"}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(doc); err != nil || string(got) != "before\n<!-- figures: ids -->\n\nnew\n\n<!-- end -->\nafter" {
		t.Errorf("got %q, %v", got, err)
	}
	write("<!-- figures: ids -->\nno end")
	if err := Refresh(doc, nil); err == nil {
		t.Error("a block without an end was replaced")
	}
}

// A drawing is XML whatever the labels are, and has every value.
func TestPlot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plot.svg")
	bars := []Bar{{"a <b> & c", true, figures.Summarize([]float64{1, 2, 4})}, {"d", false, figures.Summarize([]float64{1234})}}
	if err := Plot(file, []Panel{{"100 % & more", bars}, {"nothing", nil}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	for _, want := range []string{"a &lt;b&gt; &amp; c", ">2.00<", ">1,234<", "100 % &amp; more"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
