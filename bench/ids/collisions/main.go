// Command collisions prints how many IDs of a fleet are equal in a year, for the
// schemes of package uniqueid and for others, as formulas say. Its test checks the
// formulas with a simulation.
//
//	go run ./ids/collisions
//	go test -v ./ids/collisions
package main

import (
	"fmt"
	"math"
)

func main() {
	fmt.Printf("Pairs of equal IDs expected in a year, and the chance of any, from %d processes:\n\n", fleetSize)
	fmt.Println("| scheme | 1e5 a second | 1e6 a second | 1e7 a second | formula |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for _, scheme := range schemes() {
		fmt.Printf("| %s |", scheme.name)
		for _, rate := range rates {
			f := fleet{fleetSize, rate}
			if expected := scheme.expected(f); expected > 0 {
				fmt.Printf(" %.2g (%.2g) |", expected, scheme.chance(f))
			} else {
				fmt.Print(" 0 |")
			}
		}
		fmt.Printf(" %s |\n", scheme.formula)
	}
}

// fleet is who makes IDs in the tables: machines of one process each, which
// share the rate evenly.
type fleet struct {
	processes float64
	rate      float64 // IDs a second of all together
}

const (
	yearSeconds = 365 * 24 * 3600
	fleetSize   = 100
)

// rates are those of the tables, in IDs a second.
var rates = []float64{1e5, 1e6, 1e7}

// scheme is a kind of ID and what is to be expected of it.
type scheme struct {
	name    string
	formula string
	// expected is how many pairs of equal IDs a year brings on average.
	expected func(fleet) float64
	// chance is the probability that a year brings any.
	chance func(fleet) float64
}

// schemes are the rows of the table.
func schemes() []scheme {
	return []scheme{
		windowed("txid", "ms in a year * m^2/2 * (1-1/P) / 2^54, m = R/1000", 1e-3, 54, true),
		never("unique_id classic, by address", "0: address and pid differ"),
		byNode("unique_id classic, random node", "seconds * P(P-1)/2 / 2^64 * r^2/2^16, r = R/P", 64, 16, true),
		byNode("unique_id threaded, random node", "the same, but r in whole rounds of 2^16", 64, 16, false),
		byNode("unique_id modern", "as threaded, with 2^80", 80, 16, false),
		windowed("sharded_id", "us in a year * m^2/2 * (1-1/P) / 2^16, m = R/10^6", 1e-6, 16, true),
		never("call_number", "0: the store gives no run twice"),
		{
			"UUIDv4", "(R * seconds)^2/2 / 2^122",
			uuid4, func(f fleet) float64 { return atLeastOne(uuid4(f)) },
		},
		windowed("uuid_v7", "as txid with 2^74", 1e-3, 74, true),
		windowed("UUIDv7 of others", "as txid with 2^74, without 1-1/P", 1e-3, 74, false),
		byNode("xid", "as threaded, with 2^(24+16) and 2^24", 24+16, 24, false),
		windowed("ULID", "as txid with 2^80, without 1-1/P", 1e-3, 80, false),
	}
}

// windowed is a scheme with a time stamp and random bits. Two IDs are equal if
// they were made within one tick and agree in all the bits. Where a process
// never repeats itself, only IDs of two processes count.
func windowed(name, formula string, tick float64, bits int, distinct bool) scheme {
	expected := func(f fleet) float64 {
		return pairsInWindow(f.rate*tick, f.processes, distinct) / math.Exp2(float64(bits)) * yearSeconds / tick
	}
	return scheme{name, formula, expected, func(f fleet) float64 { return atLeastOne(expected(f)) }}
}

// pairsInWindow is how many pairs of IDs fall into one window in which m are
// made on average, independently of each other.
func pairsInWindow(m, processes float64, distinct bool) float64 {
	pairs := m * m / 2
	if distinct {
		pairs *= 1 - 1/processes
	}
	return pairs
}

// byNode is a scheme whose processes differ in bits that were drawn or hashed
// once, and count by themselves from a random start. Two processes that agree
// in the bits go on repeating each other, and if there are such, they meet
// within a year. Where extra counters are added to the bits, so do processes
// that differ by less than they count.
func byNode(name, formula string, bits, counterBits int, shifted bool) scheme {
	met, alike := meetings, func(float64) float64 { return 1 }
	if shifted {
		met, alike = shiftedMeetings, func(r float64) float64 { return 2*math.Ceil(r/math.Exp2(float64(counterBits))) - 1 }
	}
	return scheme{name, formula,
		func(f fleet) float64 {
			return nodePairs(f.processes, bits) * yearSeconds * met(f.rate/f.processes, counterBits)
		},
		func(f fleet) float64 { return atLeastOne(nodePairs(f.processes, bits) * alike(f.rate/f.processes)) },
	}
}

func nodePairs(processes float64, bits int) float64 {
	return processes * (processes - 1) / 2 / math.Exp2(float64(bits))
}

// meetings is how many equal IDs two processes of the same node bits make in a
// second, if each makes r and counts from a random start: the n IDs of the one
// and the n of the other in a round of the counter are n^2 pairs, of which one
// in 2^bits is equal. Rounds after the first are told apart by extra counters.
func meetings(r float64, bits int) float64 {
	round := math.Exp2(float64(bits))
	rest := math.Mod(r, round)
	return r - rest + rest*rest/round
}

// shiftedMeetings is the same for extra counters that are added to the node
// bits, as in the classic layout: a later round of one process then looks like
// an earlier one of a process whose bits are higher by the difference. There are
// as many such neighbours as rounds, so that every ID of the one may meet every
// ID of the other.
func shiftedMeetings(r float64, bits int) float64 {
	return r * r / math.Exp2(float64(bits))
}

func uuid4(f fleet) float64 {
	n := f.rate * yearSeconds
	return n * n / 2 / math.Exp2(122)
}

// never is a scheme in which nothing is left to chance.
func never(name, formula string) scheme {
	zero := func(fleet) float64 { return 0 }
	return scheme{name, formula, zero, zero}
}

// atLeastOne is the chance of at least one where expected are expected and they
// are independent.
func atLeastOne(expected float64) float64 { return -math.Expm1(-expected) }
