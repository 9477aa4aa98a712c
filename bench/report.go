//go:build linux

package main

import (
	"errors"
	"fmt"
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
		blocks[s.name] = render(s.tables(set)...) + "\n" + disturbance(set) + "\n"
		fmt.Printf("\n== %s\n\n%s", s.name, blocks[s.name])
		if s.draw == nil {
			continue
		}
		if err := s.draw(set).Save(filepath.Join(o.out, s.name+".png")); err != nil {
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

// render writes tables. A table is empty where a program is missing, or where a
// quick look leaves it out.
func render(tables ...table) string {
	var texts []string
	for _, t := range tables {
		if len(t.rows) > 0 {
			var text strings.Builder
			t.write(&text)
			texts = append(texts, text.String())
		}
	}
	return strings.Join(texts, "\n")
}

func machineTable(facts []machine.Fact) table {
	t := table{title: "The machine, and the others' versions.", head: []string{"what", "which"}}
	for _, f := range facts {
		t.rows = append(t.rows, f[:])
	}
	return t
}

const (
	blockBegins = "<!-- figures: "
	blockNamed  = " -->\n"
	blockEnds   = "<!-- end -->"
)

// refresh replaces the blocks of a document: the text between the lines
// "<!-- figures: name -->" and "<!-- end -->".
func refresh(path string, blocks map[string]string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("refreshing the document: %w", err)
	}
	parts := strings.Split(string(text), blockBegins)
	for i, part := range parts[1:] {
		name, rest, named := strings.Cut(part, blockNamed)
		_, rest, ended := strings.Cut(rest, blockEnds)
		if !named || !ended {
			return fmt.Errorf("refreshing %s: the block %.40q has no end", path, name)
		}
		if block, ok := blocks[name]; ok {
			parts[i+1] = name + blockNamed + "\n" + block + "\n" + blockEnds + rest
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(parts, blockBegins)), 0o644); err != nil {
		return fmt.Errorf("refreshing the document: %w", err)
	}
	return nil
}
