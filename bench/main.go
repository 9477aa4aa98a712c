// Command bench measures Orderly beside other servers on this machine, in turns.
//
//	go run .                               all of it, a quarter of an hour
//	go run . -only respond,php -rounds 2   parts, and how often each contestant has its turn
//	go run . -write figures                all of it, with the plots in the folder figures
//	go run . -against HEAD~1 -rounds 15    how much this checkout works for a request, beside a commit
//	go test -run - -bench IDs -cpu 1,2 .   generators of IDs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/report"
)

// suite is one part of the measurements.
type suite struct {
	name    string
	measure func(context.Context, *bench) error
	tables  func(*figures.Set) []report.Table
	plot    func(*figures.Set) []report.Panel // nil draws nothing
}

// options are the flags.
type options struct {
	only    []string
	rounds  int
	write   string
	against string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parseOptions() (o options, err error) {
	var names []string
	for _, s := range suites {
		names = append(names, s.name)
	}
	list := strings.Join(names, ", ")
	only := flag.String("only", "", "measure only these, separated by commas; of "+list)
	flag.IntVar(&o.rounds, "rounds", 5, "how often each contestant has its turn")
	flag.StringVar(&o.write, "write", "", "a folder: the plots go there")
	flag.StringVar(&o.against, "against", "", "a commit: measure only how much of the processor a request takes, beside that commit")
	flag.Parse()
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("there is no suite %q; choose of %s", name, list)
		}
	}
	return o, nil
}

func run(ctx context.Context) error {
	o, err := parseOptions()
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("/var/tmp", "orderly-bench-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(home)
	if err := os.Chmod(home, 0o755); err != nil { // servers may go on as another user
		return fmt.Errorf("making a directory: %w", err)
	}
	b := &bench{options: o, home: home}
	if b.caddy, err = buildCaddy(ctx, "..", b.home); err != nil {
		return err
	}
	if o.against != "" {
		return b.present(ctx, against)
	}
	fmt.Println(b.machine(ctx))
	for _, s := range suites {
		if len(o.only) == 0 || slices.Contains(o.only, s.name) {
			err = errors.Join(err, b.present(ctx, s)) // an error does not keep the others from being measured
		}
	}
	return err
}

// present measures a suite, and shows its figures.
func (b *bench) present(ctx context.Context, s suite) error {
	set, err := b.measure(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	fmt.Printf("\n== %s\n\n", s.name)
	for _, t := range s.tables(set) {
		fmt.Println(t)
	}
	fmt.Print(circumstances(set))
	if b.write == "" || s.plot == nil {
		return nil
	}
	return report.Plot(filepath.Join(b.write, s.name+".svg"), s.plot(set))
}
