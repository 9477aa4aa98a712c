package serializer

import "time"

// Poll has an engine poll its directory, as one must that hears of nothing.
func (f *File) Poll() { f.open = openDeaf }

// SlowTicks leaves an engine, for longer than a test waits, with what it does without
// ticks.
func (f *File) SlowTicks() { f.tickTime = 30 * time.Second }
