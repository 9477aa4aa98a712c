package serializer

import "time"

// Poll has an engine poll its directory, as one must that hears of nothing.
func (f *File) Poll() { f.open = openDeaf }

// Age has an engine work as versions did that wake nobody and are not woken.
func (f *File) Age() { f.open = openOlder }

// SlowTicks leaves an engine, for longer than a test waits, with what it does without
// ticks.
func (f *File) SlowTicks() { f.tickTime = 30 * time.Second }
