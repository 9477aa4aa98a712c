package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/report"
)

// document has the tables, beside the plots.
const document = "README.md"

// writeSets writes the plots and the document's tables.
func writeSets(sets map[string]*figures.Set, dir string) error {
	if dir == "" {
		return nil
	}
	var errs []error
	for _, s := range suites {
		if set := sets[s.name]; set != nil && s.plot != nil {
			errs = append(errs, report.Plot(filepath.Join(dir, s.name+".svg"), s.plot(set)))
		}
	}
	return errors.Join(append(errs, report.Refresh(filepath.Join(dir, document), texts(sets)))...)
}

// texts are the tables of all suites.
func texts(sets map[string]*figures.Set) map[string]string {
	all := make(map[string]string)
	machines := make(map[string]bool)
	for _, s := range suites {
		set := sets[s.name]
		if set == nil {
			continue
		}
		machines[set.Machine] = true
		for _, t := range s.tables(set) {
			all[s.name] += t.String() + "\n"
		}
		all[s.name] += circumstances(set)
	}
	all["machine"] = strings.Join(slices.Sorted(maps.Keys(machines)), "\n\n") + "\n"
	return all
}

// circumstances says how far the figures can be trusted.
func circumstances(s *figures.Set) string {
	rounds := 0
	for _, row := range s.Rows {
		for _, values := range row.Values {
			rounds = max(rounds, len(values))
		}
	}
	others := figures.Summarize(s.Others)
	text := fmt.Sprintf("%s: medians of %d rounds, least and most in brackets. Other programs used %.0f %% of the machine (median; at most %.0f %%).\n",
		s.Date, rounds, others.Median, others.Most)
	if others.Median > 10 {
		text += "**So only large differences mean something.**\n"
	}
	return text
}
