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
