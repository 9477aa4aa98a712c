//go:build unix && !linux

package serialize

import "os"

// newBodyFile makes a file in a directory that is gone when it is closed,
// however the process ends.
func newBodyFile(dir string) (*os.File, error) { return newRemovedFile(dir) }
