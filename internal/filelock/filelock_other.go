//go:build !windows && (!unix || aix || solaris)

package filelock

import "errors"

const noFollow = 0

// Wait fails: this system has no lock that belongs to an open file.
func Wait(uintptr, Mode) error { return errors.ErrUnsupported }

// Try fails: this system has no lock that belongs to an open file.
func Try(uintptr, Mode) (locked bool, err error) { return false, errors.ErrUnsupported }

// Unlock fails: this system has no lock that belongs to an open file.
func Unlock(uintptr) error { return errors.ErrUnsupported }
