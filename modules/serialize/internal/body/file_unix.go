//go:build unix

package body

import (
	"fmt"
	"os"
)

// newRemovedFile creates a file in a directory and removes its name at once. A
// process killed in between leaves an empty file.
func newRemovedFile(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, "orderly-body-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("removing its name: %w", err)
	}
	return file, nil
}
