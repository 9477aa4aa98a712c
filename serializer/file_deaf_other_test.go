//go:build !windows && (!unix || aix || solaris)

package serializer

import "time"

// openDeaf opens a directory that must be polled, as all are here.
func openDeaf(path string, clock func() time.Time) (lockDir, error) { return openLockDir(path, clock) }
