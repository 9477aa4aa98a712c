// Command collisions prints how many IDs of a fleet are equal in a year, for
// the schemes of package uniqueid and for others, as formulas say, and then
// checks the formulas with a simulation.
//
//	go run ./collisions
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
)

func main() {
	seed := flag.Uint64("seed", 1, "of the simulation's randomness")
	flag.Parse()
	printFormulas()
	printSimulation(rand.New(rand.NewPCG(*seed, 0)))
}

func printFormulas() {
	fmt.Printf("Pairs of equal IDs expected in a year, and the chance of any, from %d processes:\n\n", fleetSize)
	fmt.Println("| scheme | 1e5 a second | 1e6 a second | 1e7 a second | formula |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for _, scheme := range schemes() {
		fmt.Printf("| %s |", scheme.name)
		for _, rate := range rates {
			f := fleet{fleetSize, rate}
			fmt.Printf(" %s |", cell(scheme.expected(f), scheme.chance(f)))
		}
		fmt.Printf(" %s |\n", scheme.formula)
	}
}

func cell(expected, chance float64) string {
	if expected == 0 {
		return "0"
	}
	return strings.TrimSpace(fmt.Sprintf("%.2g (%.2g)", expected, chance))
}

func printSimulation(random *rand.Rand) {
	fmt.Print("\nSimulated, with fewer bits or as long as stated:\n\n")
	fmt.Println("| scheme | IDs a second | simulated | counted | formula | apart |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	s := &simulator{random: random}
	for _, e := range s.all() {
		rate := "any"
		if e.rate > 0 {
			rate = fmt.Sprintf("%.0e", e.rate)
		}
		fmt.Printf("| %s | %s | %s | %d | %.1f | %+.1f sd |\n", e.name, rate, e.scaled, e.counted, e.expected, e.apart())
	}
}
