//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

// try fails: this system has no lock that the kernel takes back from a process
// that has died.
func try(*os.File) (bool, error) { return false, errors.ErrUnsupported }
