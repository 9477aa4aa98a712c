//go:build !windows && (!unix || aix || solaris)

package filelock

import "errors"

const noFollow = 0

// Try fails: this system has no lock that belongs to an open file.
func Try(uintptr) (locked bool, err error) { return false, errors.ErrUnsupported }
