//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package uniqueid

import (
	"errors"
	"os"
)

// tryLock fails: without a lock that the kernel takes back, two processes could
// be given the same run.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
