//go:build unix && !linux

package serialize

import "os"

// newBodyFile creates a file in a directory. It is gone when it is closed, however
// the process ends.
func newBodyFile(dir string) (*os.File, error) { return newRemovedFile(dir) }
