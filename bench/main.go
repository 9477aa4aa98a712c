// Command bench guards the speed of Orderly. It measures the Caddy of this checkout beside that of
// an earlier commit, in turns, and fails if a request takes more of the processor:
//
//	go run . -against HEAD~5
//
// The benchmarks of this folder also measure Orderly beside other servers, and its IDs beside other
// generators. benchstat sums up several rounds:
//
//	for i in 1 2 3 4 5; do go test -run - -bench . . ; done | tee new
//	benchstat -col /server new                          # servers beside each other
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

func main() {
	commit := flag.String("against", "HEAD~1", "the commit whose Caddy takes turns with that of this checkout")
	flag.Parse()
	if err := compare(*commit); err != nil {
		log.Fatal("bench: ", err)
	}
}

// rounds is how often each is measured.
const rounds = 12

// tolerated is how much more of the processor a request may take.
const tolerated = 1.03

// compared are the benchmarks in which a loss would show.
const compared = "Respond/clients=(1|32)/server=Orderly|Proxy/upstream=0s/clients=32/server=Orderly"

// compare measures both, prints the ratios, and fails if one shows a loss.
func compare(commit string) error {
	home, err := os.MkdirTemp("", "orderly-bench-")
	if err != nil {
		return fmt.Errorf("making a directory for programs: %w", err)
	}
	defer os.RemoveAll(home)
	before, now := filepath.Join(home, "before", "caddy"), filepath.Join(home, "now", "caddy")
	const build = `mkdir -p "$1.tree" && git -C .. archive "$2" | tar -xC "$1.tree" && go build -C "$1.tree" -o "$1" ./cmd/caddy &&
		go build -C .. -o "$3" ./cmd/caddy && go test -c -o "$3.test" .`
	if out, err := exec.Command("bash", "-o", "pipefail", "-c", build, "-", before, commit, now).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s and this checkout: %w\n%s", commit, err, out)
	}
	ratios := make(map[string][]float64)
	for range rounds {
		then, errThen := measure(now+".test", before)
		today, err := measure(now+".test", now)
		if err := errors.Join(errThen, err); err != nil {
			return err
		}
		for name, work := range today {
			ratios[name] = append(ratios[name], work/then[name])
		}
	}
	return judge(ratios)
}

var processorTime = regexp.MustCompile(`(?m)^Benchmark(\S+)\s.*\s(\S+) processor-µs`)

// measure returns how much of the processor a request to a Caddy takes, by benchmark.
func measure(benchmarks, caddy string) (map[string]float64, error) {
	c := exec.Command(benchmarks, "-test.run=-", "-test.benchtime=1x", "-test.bench="+compared)
	c.Env = append(os.Environ(), "CADDY="+caddy)
	out, err := c.CombinedOutput()
	found := processorTime.FindAllSubmatch(out, -1)
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("measuring %s: %w\n%s", caddy, err, out)
	}
	work := make(map[string]float64)
	for _, match := range found {
		if work[string(match[1])], err = strconv.ParseFloat(string(match[2]), 64); err != nil {
			return nil, fmt.Errorf("reading the figures of %s: %w", caddy, err)
		}
	}
	return work, nil
}

// judge prints the median of each benchmark's ratios, and the interval in which it lies with a
// certainty of 96 %: from the third to the tenth of twelve.
func judge(ratios map[string][]float64) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		all := slices.Sorted(slices.Values(ratios[name]))
		const out = 2
		text := fmt.Sprintf("%.2f (%.2f to %.2f)", (all[rounds/2-1]+all[rounds/2])/2, all[out], all[rounds-1-out])
		fmt.Printf("%-70s %s times the processor time of before\n", name, text)
		if all[out] > tolerated {
			errs = append(errs, fmt.Errorf("%s: a request takes more of the processor than before: %s times", name, text))
		}
	}
	return errors.Join(errs...)
}
