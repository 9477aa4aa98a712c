//go:build linux

package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/orderly-http/caddy-orderly/bench/ids"
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/library"
)

// The document's tables are those of the raw results beside it: nobody has edited
// either alone.
func TestDocument(t *testing.T) {
	want, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := os.CopyFS(out, os.DirFS("../docs/performance")); err != nil {
		t.Fatal(err)
	}
	doc := filepath.Join(out, "performance.md")
	if err := os.WriteFile(doc, want, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := report(options{out: out, doc: doc}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(doc); err != nil || string(got) != string(want) {
		t.Errorf("the tables of docs/performance.md differ from docs/performance/*.csv (%v); make them again with -only none and -doc", err)
	}
}

func TestRefreshRefuses(t *testing.T) {
	doc := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(doc, []byte("<!-- figures: ids -->\nno end"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := refresh(doc, nil); err == nil {
		t.Error("a block without an end was replaced")
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 0.0123: "0.012", -0.5: "-0.50", 12.34: "12.3", -1234: "-1,234", 1234567: "1,234,567"} {
		if got := number(value); got != want {
			t.Errorf("number(%v) = %q, want %q", value, got, want)
		}
	}
}

func TestTargetMet(t *testing.T) {
	one := figures.Summarize([]float64{1})
	for want, targets := range map[string][]target{
		"yes":          {atLeast("", 1, one), atMost("", 1, "", one), atLeast("", 0.5, one), atMost("", 2, "", one)},
		"**no**":       {atLeast("", 2, one), atMost("", 0.5, "", one)},
		"not measured": {atLeast("", 1, figures.Summarize(nil))},
	} {
		for _, target := range targets {
			if got := target.met(); got != want {
				t.Errorf("%+v is met: %s, want %s", target, got, want)
			}
		}
	}
}

// Instructions were counted with 8,000 waiting in place of 50: each trial looked at its
// queue only once the loop over lengths had ended.
func TestInstructionTrials(t *testing.T) {
	b := &bench{shm: t.TempDir(), disk: t.TempDir()}
	trials := b.instructionTrials(func(_ context.Context, q library.Queueing, _ string) (float64, error) { return float64(q.Waiting), nil })
	for _, trial := range trials {
		values, err := trial.measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for m, n := range values {
			if n != float64(trial.Waiting) {
				t.Errorf("%s, %s: counted with %.0f waiting", conditions(trial.Case), m, n)
			}
		}
	}
}

// The IDs of the comparison come with their groups, and without figures that were not
// measured.
func TestNoteIDs(t *testing.T) {
	b := &bench{suite: "ids"}
	b.noteIDs([]ids.Speed{
		{Generator: ids.Generator{Name: "txid", Ours: true}, Time: 50, Ratio: 0.5, Allocations: 1, Scaling: math.NaN()},
		{Generator: ids.Unshared(), Time: math.NaN(), Ratio: math.NaN(), Allocations: math.NaN(), Scaling: 2},
	})
	txid := figures.Case{Suite: "ids", Group: ourIDs, Contestant: "txid"}
	if cases := b.set.Cases(figures.ID); len(cases) != 1 || cases[0] != txid || len(b.set) != 4 {
		t.Errorf("got %+v", b.set)
	}
}
