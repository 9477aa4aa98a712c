package serializer

import "time"

// Poll makes an engine poll its directory, as it must on a system without
// notification.
func (f *File) Poll() { f.open = openDeaf }

// SlowTicks makes ticks so rare that a test sees what an engine does without them.
func (f *File) SlowTicks() { f.tickTime = 30 * time.Second }
