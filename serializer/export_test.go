package serializer

import "time"

// Poll has an engine poll its directory, as one must that hears of nothing.
func (f *File) Poll() { f.open = openDeaf }

// StopTicks leaves an engine with what it does without them.
func (f *File) StopTicks() { f.tickTime = time.Hour }
