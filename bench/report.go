//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

// report makes tables and plots of all the figures that lie in the folder,
// whenever they were measured.
func report(o options) error {
	all := make(map[string]results.Set)
	blocks := make(map[string]string)
	for _, s := range suites {
		set, err := results.ReadFile(filepath.Join(o.out, s.name+".csv"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		all[s.name] = set
		blocks[s.name] = renderSuite(s, set)
		fmt.Printf("\n== %s\n\n%s", s.name, blocks[s.name])
		if s.draw == nil {
			continue
		}
		if err := s.draw(set, o.out); err != nil {
			return err
		}
	}
	blocks["targets"] = render(targetsTable(all))
	fmt.Printf("\n== targets\n\n%s", blocks["targets"])
	facts, err := machine.ReadFile(filepath.Join(o.out, machineFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	blocks["machine"] = render(machineTable(facts))
	if o.doc == "" {
		return nil
	}
	return refresh(o.doc, blocks)
}

func renderSuite(s *suite, set results.Set) string {
	var buf bytes.Buffer
	for _, t := range s.tables(set) {
		if len(t.rows) == 0 { // left out, or a program is missing
			continue
		}
		t.write(&buf)
		fmt.Fprintln(&buf)
	}
	fmt.Fprintf(&buf, "%s\n", disturbance(set))
	return buf.String()
}

func render(t table) string {
	var buf bytes.Buffer
	t.write(&buf)
	return buf.String()
}

func machineTable(facts []machine.Fact) table {
	t := table{title: "The machine, and the others' versions.", head: []string{"what", "which"}}
	for _, f := range facts {
		t.add(f.Name, f.Value)
	}
	return t
}

// refresh replaces the blocks of a document: what stands between the lines
// "<!-- figures: name -->" and "<!-- end -->".
func refresh(path string, blocks map[string]string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("refreshing the document: %w", err)
	}
	var out strings.Builder
	if err := replaceBlocks(&out, string(text), blocks); err != nil {
		return fmt.Errorf("refreshing %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
		return fmt.Errorf("refreshing the document: %w", err)
	}
	return nil
}

const (
	blockBegins = "<!-- figures: "
	blockNamed  = " -->\n"
	blockEnds   = "<!-- end -->"
)

func replaceBlocks(w io.StringWriter, text string, blocks map[string]string) error {
	for {
		before, rest, ok := strings.Cut(text, blockBegins)
		if _, err := w.WriteString(before); err != nil || !ok {
			return err
		}
		name, rest, named := strings.Cut(rest, blockNamed)
		old, rest, ended := strings.Cut(rest, blockEnds)
		if !named || !ended {
			return fmt.Errorf("the block %.40q has no end", name)
		}
		if block, ok := blocks[name]; ok {
			old = "\n" + block + "\n"
		}
		if _, err := w.WriteString(blockBegins + name + blockNamed + old + blockEnds); err != nil {
			return err
		}
		text = rest
	}
}
